"""A stand-in on the path of another interpreter: importing it loads the package around it, and nothing beside that."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_home = Path(__file__).resolve().parents[2]
_spec = spec_from_file_location("agentrl", _home / "__init__.py", submodule_search_locations=[str(_home)])
assert _spec is not None
assert _spec.loader is not None
_module = sys.modules["agentrl"] = module_from_spec(_spec)
_spec.loader.exec_module(_module)

"""A plugin class that other processes cannot import, such as a notebook's: pickled with its code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import get_type_hints

import cloudpickle

from agentrl.errors import ConfigError, catch
from agentrl.plugins.kind import BOUND_NAME, Kind, T
from agentrl.plugins.origins import places_of, top_of
from agentrl.plugins.registry import announced, load

FIND = """
import json, sys
from importlib.util import find_spec
found = {name: find_spec(name) for name in sys.argv[1:]}
where = {name: [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
         for name, spec in found.items() if spec}
print(json.dumps(where))
"""
"""Prints where a new process finds the modules with the names in argv, after what its start prints."""
FIND_S = 60.0


def name_of(kind: Kind[T], plugin: type[T]) -> str:
    """Return the name by which every process finds the class: announced, or `file.py:Class`; "" if there is none."""
    if bound := vars(plugin).get(BOUND_NAME):
        return str(bound)
    package = plugin.__module__.partition(".")[0]
    for item in announced(kind).values():
        if top_of(item.target) == package and not item.rival and catch(load, kind, item).value is plugin:
            return item.name
    module = sys.modules.get(plugin.__module__)
    file = getattr(module, "__file__", None)
    is_alone = module is not None and module.__name__ != "__main__" and not module.__package__
    is_global = getattr(module, plugin.__qualname__, None) is plugin
    return f"{Path(file).resolve()}:{plugin.__qualname__}" if file and is_alone and is_global else ""


def dump(kind: Kind[T], plugin: type[T], path: Path) -> None:
    """Write the class and the code it uses to `path`. Raises ConfigError if it cannot be pickled."""
    _evaluate_annotations(kind, plugin)
    pickled = catch(_pickled, plugin)
    if pickled.error:
        raise ConfigError(
            f"{plugin.__name__} cannot be pickled ({type(pickled.error).__name__}: {pickled.error}): "
            f'write it into a file and pass {kind.argument}="./file.py:{plugin.__name__}"'
        ) from pickled.error
    path.write_bytes(pickled.value)


def _pickled(plugin: type) -> bytes:
    """Pickle the class, and the modules that other processes cannot import, such as a package beside a notebook."""
    modules = _local_modules()
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(plugin))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _local_modules() -> list[ModuleType]:
    """Return the top-level modules that a new process in another folder does not find, or finds elsewhere."""
    passed = {"agentrl", "__main__", *sys.stdlib_module_names, *cloudpickle.list_registry_pickle_by_value()}
    modules = {
        name: module
        for name, module in sys.modules.items()
        if name.isidentifier() and name not in passed and getattr(module, "__spec__", None)
    }
    command = [sys.executable, "-P", "-c", FIND, *modules]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd="/", timeout=FIND_S)
    found = json.loads(ran.stdout.splitlines()[-1])
    return [module for name, module in modules.items() if found.get(name) != places_of(module.__spec__)]


def _evaluate_annotations(kind: Kind[T], plugin: type[T]) -> None:
    """Replace annotations that are text by what they name: cloudpickle takes along only names that code reads."""
    for owner in plugin.__mro__[: plugin.__mro__.index(kind.base)]:
        for value in vars(owner).values():
            function = getattr(value, "__func__", value)
            hints = catch(get_type_hints, function, None, None, True) if isinstance(function, FunctionType) else None
            if hints and not hints.error:
                function.__annotations__ = hints.value

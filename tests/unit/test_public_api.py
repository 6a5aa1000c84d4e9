"""`agentrl` exports these names and no others; importing it loads none of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import agentrl

EXPORTED = ["Config", "Run", "__version__", "evaluate", "export", "load_config", "resume", "train"]


def test_these_names_are_exported() -> None:
    assert sorted(agentrl.__all__) == EXPORTED
    assert set(EXPORTED) <= set(dir(agentrl))
    assert {name for name in EXPORTED if getattr(agentrl, name) is None} == set()


def test_mypy_sees_each_name_where_it_is_imported_from() -> None:
    tree = ast.parse(Path(agentrl.__file__).read_text())
    seen = {a.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names}
    assert {name: seen[name] for name in agentrl._HOMES} == agentrl._HOMES
    assert {name: seen[name] for name in agentrl._MODULES} == dict.fromkeys(agentrl._MODULES, "agentrl")
    assert agentrl._HOMES.keys() == set(EXPORTED) - {"__version__"}


@pytest.mark.parametrize("name", ["algorithms", "env", "errors", "types"])
def test_the_modules_that_users_need_are_attributes(name: str) -> None:
    code = f"import agentrl\nprint('{name}' in dir(agentrl), agentrl.{name}.__name__)"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30)
    assert answer.stdout == f"True agentrl.{name}\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'agentrl' has no attribute 'trian'"):
        agentrl.trian  # noqa: B018


def test_the_import_loads_nothing_but_itself() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport agentrl\nprint(*sorted(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30)
    loaded = [name for name in answer.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert loaded == ["agentrl"]


def test_the_functions_load_no_torch_before_a_run_begins() -> None:
    heavy = ("torch", "ray", "vllm", "deepspeed", "transformers")
    code = f"import sys\nfrom agentrl import *\nprint([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert answer.stdout == "[]\n"

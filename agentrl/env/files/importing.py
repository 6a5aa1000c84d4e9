"""The import of a file that imports openrlhf: from the installed package, or from a stand-in."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.env.files.openrlhf import STAND_INS
from agentrl.env.files.results import PAGE
from agentrl.errors import ConfigError, catch_exit

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
GUARDS = (ast.Try, ast.If, ast.With)
"""Statements in which a file may do without an import."""
_importing = threading.RLock()


@dataclass(frozen=True)
class Imported:
    """A name that a file imports from openrlhf."""

    line: int
    module: str
    name: str
    """A class, a function or a module in `module`; "" if the module itself is imported."""
    is_needed: bool
    """Whether the file cannot be imported without it."""
    is_late: bool
    """Whether a function imports it, after the import of the file."""

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def has_stand_in(self) -> bool:
        """Return whether the stand-in has it."""
        known = STAND_INS.get(self.module)
        return str(self) in STAND_INS or (known is not None and (self.name in known or self.name in ("", "*")))


class StandIn(ModuleType):
    """A module in place of one of openrlhf. It refuses every name that it lacks with an ImportError."""

    def __init__(self, name: str, members: Mapping[str, Any], fault: str) -> None:
        super().__init__(name)
        vars(self).update(members, fault=fault)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(lacks(f"{self.__name__}.{name}", vars(self)["fault"]), name=self.__name__)


@contextmanager
def importing(path: Path) -> Iterator[None]:
    """Import a file with the stand-in, if it imports openrlhf and that is not installed or cannot be imported.

    The stand-in stays if a function of the file imports from it. Raises ConfigError, before the file is imported, for
    a name that it needs and the stand-in lacks.
    """
    with _importing:
        found = list(imported(path))
        before = _theirs()
        if not found or not (fault := _fault(found)):
            yield
            return
        for one in found:
            if one.is_needed and not one.has_stand_in:
                raise ConfigError(f"{path}:{one.line}: {lacks(str(one), fault)}")
        if _is_stand_in(before):
            yield
            return
        _replace(_stand_ins(fault))
        try:
            yield
        finally:
            if not any(one.is_late for one in found):
                _replace(before)


def lacks(name: str, fault: str) -> str:
    """Return that the stand-in lacks a name, why it is used, and what to do."""
    known = ", ".join(STAND_INS["openrlhf.utils.agent"])
    return (
        f"{fault}, and agentrl provides no {name}; of openrlhf.utils.agent it provides {known}. Write what you need of "
        f"{name.rpartition('.')[2]} into the file, or pip install --no-deps openrlhf pylatexenc ({PAGE})"
    )


def imported(path: Path) -> Iterator[Imported]:
    """Yield what a file imports from openrlhf; nothing for a file with errors."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    yield from _imported(tree, is_needed=True, is_late=False)


def _imported(tree: ast.AST, *, is_needed: bool, is_late: bool) -> Iterator[Imported]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(node.module or "", alias.name) for alias in node.names]
        else:
            is_inner = isinstance(node, FUNCTIONS)
            is_sure = is_needed and not is_inner and not isinstance(node, GUARDS)
            yield from _imported(node, is_needed=is_sure, is_late=is_late or is_inner)
            continue
        theirs = ((module, name) for module, name in names if is_theirs(module))
        yield from (Imported(node.lineno, module, name, is_needed, is_late) for module, name in theirs)


def is_theirs(name: str) -> bool:
    """Return whether a module belongs to openrlhf."""
    return name.partition(".")[0] == "openrlhf"


def _theirs() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if is_theirs(name)}


def _is_stand_in(modules: Mapping[str, ModuleType]) -> bool:
    return isinstance(modules.get("openrlhf"), StandIn)


def _fault(found: list[Imported]) -> str:
    """Import what a file needs, and what the stand-in has, from the installed openrlhf.

    Returns why that fails, "" if it works.
    """
    before = _theirs()
    if _is_stand_in(before):
        return str(vars(before["openrlhf"])["fault"])
    if not before and not find_spec("openrlhf"):
        return "openrlhf is not installed"
    for one in found:
        if not (one.is_needed or one.has_stand_in):
            continue
        if error := catch_exit(_load, one).error:
            _replace(before)
            return f"openrlhf is installed, but {one.module} cannot be imported ({type(error).__name__}: {error})"
    return ""


def _load(one: Imported) -> None:
    """Import a name. Raises ImportError if there is none."""
    module = import_module(one.module)
    if one.name not in ("", "*") and not hasattr(module, one.name):
        import_module(str(one))


def _stand_ins(fault: str) -> dict[str, ModuleType]:
    """Return the modules of the stand-in by name, each an attribute of its parent."""
    modules: dict[str, ModuleType] = {name: StandIn(name, STAND_INS[name], fault) for name in STAND_INS}
    for name in modules.keys() - {"openrlhf"}:
        parent, _, own = name.rpartition(".")
        setattr(modules[parent], own, modules[name])
    return modules


def _replace(modules: Mapping[str, ModuleType]) -> None:
    """Make these the only modules of openrlhf."""
    for name in _theirs():
        del sys.modules[name]
    sys.modules.update(modules)

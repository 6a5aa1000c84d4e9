"""Description of a kind of plugin."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")
BOUND_NAME = "__agentrl_name__"
"""Attribute of a class that is made from its name, such as `rg:leg_counting`: that name."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of plugin: the subclasses of `base`, announced by packages in an entry-point group or defined in files."""

    noun: str
    base: ABCMeta
    group: str
    """Entry-point group."""
    argument: str
    """Argument of `agentrl.train` that names one."""
    files: tuple[str, ...]
    """Files in which a folder may define one."""
    remedy: str
    """What to do about an unknown name; `{name}` is the name, `{package}` the same as a part of a package's name."""
    apart: str = ""
    """How to install one apart from those of this interpreter, as the end of a sentence; `{name}` is its name."""
    shipped: tuple[EntryPoint, ...] = ()
    """Those of agentrl itself."""
    is_name: Callable[[str], object] = bool
    """Whether a package may announce this name; others are skipped."""
    naming: str = ""
    """The same rule in words."""
    importing: Callable[[Path], AbstractContextManager[object]] = nullcontext
    """Context in which a file is imported."""
    derive: Callable[[ModuleType, str], type[T] | None] | None = None
    """Returns the class made from what a file defines in its place, under a name or any; None if there is nothing."""
    derived_from: str = ""
    """What that may be, for error messages."""

    @property
    def public(self) -> str:
        """The name of `base` for its users, such as agentrl.env.Env."""
        return f"{self.base.__module__.rpartition('.')[0]}.{self.base.__name__}"

"""Description of a kind of plugin."""

from __future__ import annotations

from abc import ABCMeta
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Generic, TypeVar

T = TypeVar("T")


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
    """What to do about an unknown name; `{package}` is the name as a part of a package's name."""
    shipped: tuple[EntryPoint, ...] = ()
    """Those of agentrl itself."""

    @property
    def public(self) -> str:
        """The name of `base` for its users, such as agentrl.env.Env."""
        return f"{self.base.__module__.rpartition('.')[0]}.{self.base.__name__}"

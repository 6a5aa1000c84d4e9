"""Plugin classes by name: announced by installed packages, in a module, or in a file or folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from agentrl import __version__
from agentrl.errors import ConfigError, UnknownNameError, catch_exit
from agentrl.plugins.files import is_path, load_path, loaded_class
from agentrl.plugins.kind import Kind, T

TARGET = re.compile(r"[\w.]+:\w+")
"""`package:Class` or `package.module:Class`."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A class in the entry-point group of an installed distribution."""

    name: str
    target: str
    distribution: str
    version: str
    entry: EntryPoint
    rival: str = ""
    """Another distribution that announces a different class under the same name."""


@cache
def announced(kind: Kind[Any]) -> dict[str, Announced]:
    """Return every announced class by name."""
    found: dict[str, Announced] = {}
    for item in _all(kind):
        other = found.setdefault(item.name, item)
        if other.target != item.target:
            found[item.name] = replace(other, rival=item.distribution or item.target)
    return found


def _all(kind: Kind[Any]) -> Iterator[Announced]:
    for entry in kind.shipped:
        yield Announced(entry.name, entry.value, "agentrl", __version__, entry)
    for entry in entry_points(group=kind.group):
        name, version = (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
        yield Announced(entry.name, entry.value, name, version, entry)


def resolve(kind: Kind[T], name: str) -> type[T]:
    """Return the class called `name`.

    A name is `math`, `owner/name`, `owner/name@1.2`, `package:Class`, `./file.py[:Class]` or `./folder`.
    Raises UnknownNameError for an unknown name, and ConfigError for a class that cannot be loaded.
    """
    if is_path(name):
        return load_path(kind, name)
    if TARGET.fullmatch(name):
        return loaded_class(kind, catch_exit(EntryPoint(name, name, kind.group).load), f"{kind.noun} {name!r}")
    bare, _, version = name.partition("@")
    item = find(kind, bare)
    if item.rival:
        raise ConfigError(f"{item.distribution} and {item.rival} both announce {kind.noun} {bare!r}; uninstall one")
    if version and item.version.split(".")[: len(version.split("."))] != version.split("."):
        raise ConfigError(
            f"{kind.noun} {name!r}: {item.distribution} {item.version} is installed; "
            f"pip install '{item.distribution}=={version}.*', or leave the version out"
        )
    return load(kind, item)


def find(kind: Kind[Any], name: str) -> Announced:
    """Return the announced class called `name`.

    For `owner/name`, `name` announced by a distribution of that owner.
    """
    known = announced(kind)
    owner, _, last = name.rpartition("/")
    if name in known:
        return known[name]
    if owner and last in known and known[last].distribution.lower().startswith(f"{owner.lower()}-"):
        return known[last]
    hint = kind.remedy.format(package=name.replace("/", "-"))
    if here := next((path for path in (Path(f"{name}.py"), Path(name)) if path.exists()), None):
        hint = f"To use the one in this folder, write ./{here}."
    raise UnknownNameError(kind.noun, name, known, hint)


def load(kind: Kind[T], item: Announced) -> type[T]:
    """Import the class; raises ConfigError with the package and the error of the import."""
    where = f"{kind.noun} {item.name!r} of {item.distribution} {item.version} ({item.target})"
    return loaded_class(kind, catch_exit(item.entry.load), where)

"""Plugin classes by name: announced by installed packages, in a module, or in a file or folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from agentrl import __version__
from agentrl.errors import ConfigError, UnknownNameError, catch_exit
from agentrl.plugins.files import is_path, load_path, loaded_class
from agentrl.plugins.kind import Kind, T
from agentrl.plugins.origins import check_installed

TARGET = re.compile(r"[\w.]+:\w+")
"""`package:Class` or `package.module:Class`."""
VERSIONED = re.compile(r"([^@=<>!~]+)(?:@(.+)|([=<>!~].+))")
"""`name@1.2` or `name>=1.2`."""
RELEASE = re.compile(r"v?(\d+!)?\d+(\.\d+)*")
"""A version that others can begin with; PEP 440 compares one with a suffix, such as `1.2rc1`, as a whole."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A class in the entry-point group of an installed distribution."""

    name: str
    target: str
    distribution: str
    version: str
    entry: EntryPoint
    rival: str = ""
    """Another distribution that announces the same name, or another class of the same distribution."""


@cache
def announced(kind: Kind[Any]) -> dict[str, Announced]:
    """Return every announced class by name."""
    found: dict[str, Announced] = {}
    for item in (each for each in _all(kind) if kind.is_name(each.name)):
        other = found.setdefault(item.name, item)
        if other.target != item.target or canonicalize_name(other.distribution) != canonicalize_name(item.distribution):
            found[item.name] = replace(other, rival=item.distribution or item.target)
    return found


def misnamed(kind: Kind[Any]) -> list[str]:
    """Return a sentence on every announced name that is skipped, because no name may look like it."""
    return [
        f"{item.distribution or item.target} announces {item.name!r}, which is skipped: write {kind.naming}."
        for item in _all(kind)
        if not kind.is_name(item.name)
    ]


def _all(kind: Kind[Any]) -> Iterator[Announced]:
    for entry in kind.shipped:
        yield Announced(entry.name, entry.value, "agentrl-core", __version__, entry)
    for entry in entry_points(group=kind.group):
        name, version = (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
        yield Announced(entry.name, entry.value, name, version, entry)


def resolve(kind: Kind[T], name: str) -> type[T]:
    """Return the class called `name`.

    A name is `math`, `owner/name`, `package:Class`, `./file.py[:Class]` or `./folder`; the first two may be followed by
    a version, as in `math@1.2` or `math==1.2.3`.
    Raises UnknownNameError for an unknown name, and ConfigError for a class that cannot be loaded.
    """
    if is_path(name):
        return load_path(kind, name)
    if TARGET.fullmatch(name):
        return _imported(kind, EntryPoint(name, name, kind.group), f"{kind.noun} {name!r}")
    bare, version = split_version(name)
    item = find(kind, bare)
    if item.rival:
        raise ConfigError(
            f"{item.distribution} and {item.rival} both announce {kind.noun} {bare!r}; uninstall one"
            f"{kind.apart.format(name=name)}, or announce it with an owner, as in OWNER/{bare.rpartition('/')[2]}"
        )
    if version:
        check_version(f"{kind.noun} {name!r}", item.distribution, item.version, version, kind.apart.format(name=name))
    return load(kind, item)


def split_version(name: str) -> tuple[str, str]:
    """Split `math@1.2` or `math>=1.2` into the name and PEP 440 specifiers; those are empty if there is no version.

    `@1.2` means every version that begins with 1.2, and `@1.2rc1` that version alone.
    """
    match = VERSIONED.fullmatch(name)
    bare, wanted, specifiers = match.groups("") if match else (name, "", "")
    if not wanted:
        return bare, specifiers
    return bare, f"=={wanted}.*" if RELEASE.fullmatch(wanted) else f"=={wanted}"


def check_version(what: str, distribution: str, installed: str, wanted: str, apart: str = "") -> None:
    """Raise ConfigError unless the installed version of a distribution meets PEP 440 specifiers.

    `apart` says how to install the wanted one beside it.
    """
    if not specifiers(what, wanted).contains(installed, prereleases=True):
        raise ConfigError(
            f"{what}: {distribution} {installed} is installed; "
            f"pip install '{distribution}{wanted}'{apart}, or leave the version out"
        )


def specifiers(what: str, wanted: str) -> SpecifierSet:
    """Parse PEP 440 specifiers. Raises ConfigError for a version that is none."""
    try:
        return SpecifierSet(wanted)
    except InvalidSpecifier as error:
        raise ConfigError(f"{what}: write a version as @1.2, ==1.2.3 or ~=1.2 ({error})") from error


def find(kind: Kind[Any], name: str, others: Iterable[str] = ()) -> Announced:
    """Return the announced class called `name`.

    For `owner/name`, `name` announced by a distribution of that owner. Raises UnknownNameError if there is none, which
    also lists `others`.
    """
    if item := known(kind, name):
        return item
    hint = kind.remedy.format(package=name.replace("/", "-"), name=name)
    if here := next((path for path in (Path(f"{name}.py"), Path(name)) if path.exists()), None):
        hint = f"To use the one in this folder, write ./{here}."
    raise UnknownNameError(kind.noun, name, {*announced(kind), *others}, " ".join([hint, *misnamed(kind)]))


def known(kind: Kind[Any], name: str) -> Announced | None:
    """Return the same, None if there is none."""
    every = announced(kind)
    item = every.get(name) or every.get(name.rpartition("/")[2])
    return item if item and is_called(name, item.name, item.distribution) else None


def is_called(name: str, announced: str, distribution: str) -> bool:
    """Return whether `name` means an announced one: itself, or `owner/…` of a distribution of that owner."""
    owner, _, last = name.rpartition("/")
    owners = (f"{owner.lower()}-", f"agentrl-env-{owner.lower()}-")
    return name == announced or bool(owner and last == announced and distribution.lower().startswith(owners))


def load(kind: Kind[T], item: Announced) -> type[T]:
    """Import the class; raises ConfigError with the package and the error of the import."""
    return _imported(
        kind, item.entry, f"{kind.noun} {item.name!r} of {item.distribution} {item.version} ({item.target})"
    )


def _imported(kind: Kind[T], entry: EntryPoint, what: str) -> type[T]:
    check_installed(entry.value, what)
    return loaded_class(kind, catch_exit(entry.load), what)

"""Installed distributions by name, for programs in sandboxes: what they require, and where their modules lie.

Nothing comes along but the modules and packages that a distribution's RECORD lists: no scripts, no `.pth` files,
nothing that would stand in front of the standard library or run when an interpreter starts.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from agentrl_sandbox.errors import PackagesError

FOLDER = "/packages"
"""Where they lie in a sandbox that has a file system of its own."""

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
NOT_MODULES = ("__pycache__", "sitecustomize", "usercustomize")
NOT_PACKAGES = (".dist-info", ".egg-info", ".data")
Parts = tuple[str, ...]


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in the one spelling that all of its spellings stand for; PackagesError for what is no name."""
    given = [names] if isinstance(names, str) else [*names]
    for name in given:
        if not NAME.fullmatch(name):
            raise PackagesError(f"packages: {name!r} is no name; write one as pip knows it, without a version: numpy")
    return tuple(dict.fromkeys(map(_normal, given)))


def required(names: Iterable[str]) -> dict[str, Distribution]:
    """These distributions and all that they require, by name; PackagesError says what is missing and what to do."""
    found: dict[str, Distribution] = {}
    wanted = [(name, "", True) for name in names]
    for name, by, is_needed in wanted:  # which grows
        if name not in found and (one := _installed(name, by, is_needed)):
            found[name] = one
            wanted += [(other, name, is_sure) for other, is_sure in _requirements(one)]
    return found


def paths(names: Iterable[str]) -> dict[str, Path]:
    """The files and folders that have to be shown below FOLDER: where each belongs there, and where it is here."""
    shown: dict[str, Path] = {}
    for one in required(names).values():
        root = Path(str(one.locate_file("")))
        listed = [file.parts for file in one.files or () if _is_importable(file.parts)]
        shown |= {str(path.relative_to(root)): path for path in _shown(root, listed) if path.exists()}
    return dict(sorted(shown.items()))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str, by: str, is_needed: bool) -> Distribution | None:
    """None for one that is not installed, and may not be needed here."""
    try:
        one = distribution(name)
    except PackageNotFoundError:
        if not is_needed:
            return None
        why = f" ({by} requires it)" if by else ""
        fix = f"pip install {name}, in the environment that agentrl runs in ({sys.prefix})"
        raise PackagesError(f"package {name!r} is not installed{why}. {fix}") from None
    if reason := _why_not(name, one):
        raise PackagesError(f"package {name!r}{f', which {by} requires,' if by else ''} {reason}")
    return one


def _why_not(name: str, one: Distribution) -> str:
    """What keeps it out of sandboxes; "" when nothing does."""
    is_ours = name.split("-")[0] == "agentrl" or any(entry.group.startswith("agentrl.") for entry in one.entry_points)
    if is_ours:
        return "cannot be lent to programs: they are not to read how they are graded"
    if json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return f"is an editable install, and what its files are is not on record. pip install it without -e: {name}"
    if one.read_text("RECORD") is None:
        return f"has no record of its files. Install it with pip: pip install --force-reinstall {name}"
    return ""


def _requirements(one: Distribution) -> Iterator[tuple[str, bool]]:
    """What it requires without extras, and whether everywhere: what a marker asks for is installed where it holds."""
    for line in one.requires or ():
        requirement, _, marker = line.partition(";")
        if (name := NAME.match(requirement.strip())) and not re.search(r"\bextra\b", marker):
            yield _normal(name[0]), not marker


def _is_importable(parts: Parts) -> bool:
    """Whether a line of RECORD belongs to a module or package that may be shown, or to libraries that it loads."""
    first, module = parts[0], parts[0].partition(".")[0]
    if module in sys.stdlib_module_names or module in NOT_MODULES or first in ("..", "/"):
        return False
    return first.endswith(tuple(all_suffixes())) if len(parts) == 1 else not first.endswith(NOT_PACKAGES)


def _shown(folder: Path, listed: list[Parts]) -> Iterator[Path]:
    """Files as they are, folders whole; of a folder that other distributions have a part in, only what is listed."""
    for name, below in _by_first(listed).items():
        path = folder / name
        if () in below or _is_whole(path, below):
            yield path
        else:
            yield from _shown(path, below)


def _is_whole(folder: Path, listed: list[Parts]) -> bool:
    """Return whether it is a package, or all in it is listed."""
    known = _by_first(listed)
    if "__init__.py" in known or not folder.is_dir():
        return True
    inside = [entry for entry in folder.iterdir() if entry.name != "__pycache__"]
    return all(entry.name in known and (entry.is_file() or _is_whole(entry, known[entry.name])) for entry in inside)


def _by_first(listed: Iterable[Parts]) -> dict[str, list[Parts]]:
    groups: dict[str, list[Parts]] = {}
    for first, *rest in listed:
        groups.setdefault(first, []).append(tuple(rest))
    return groups

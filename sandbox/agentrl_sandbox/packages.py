"""Installed distributions for programs in sandboxes: their requirements and the locations of their modules.

Only modules and packages in a distribution's RECORD are made available: no scripts, no `.pth` files, nothing that would
shadow the standard library or run when an interpreter starts.
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
"""Their folder in a sandbox with its own file system."""

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
NOT_MODULES = ("__pycache__", "sitecustomize", "usercustomize")
NOT_PACKAGES = (".dist-info", ".egg-info", ".data")
Parts = tuple[str, ...]


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Normalise names and remove duplicates; PackagesError for an invalid name."""
    names = [names] if isinstance(names, str) else [*names]
    for name in names:
        if not NAME.fullmatch(name):
            raise PackagesError(f"packages: {name!r} is not a name; write it as for pip, without a version: numpy")
    return tuple(dict.fromkeys(map(_normal, names)))


def required(names: Iterable[str]) -> dict[str, Distribution]:
    """Return these distributions and all their requirements by name; PackagesError if one is missing."""
    found: dict[str, Distribution] = {}
    queue = [(name, "", True) for name in names]
    for name, by, is_needed in queue:  # grows in the loop
        if name not in found and (one := _installed(name, by, is_needed)):
            found[name] = one
            queue += [(other, name, is_sure) for other, is_sure in _requirements(one)]
    return found


def paths(names: Iterable[str]) -> dict[str, Path]:
    """Map the paths that belong below FOLDER to the files and folders on this machine."""
    shown: dict[str, Path] = {}
    for one in required(names).values():
        root = Path(str(one.locate_file("")))
        listed = [file.parts for file in one.files or () if _is_importable(file.parts)]
        shown |= {str(path.relative_to(root)): path for path in _shown(root, listed) if path.exists()}
    return dict(sorted(shown.items()))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str, by: str, is_needed: bool) -> Distribution | None:
    """Return a distribution; None if it is not installed and may not be needed on this machine."""
    try:
        one = distribution(name)
    except PackageNotFoundError:
        if not is_needed:
            return None
        why = f" ({by} requires it)" if by else ""
        fix = f"pip install {name} in the environment of agentrl ({sys.prefix})"
        raise PackagesError(f"package {name!r} is not installed{why}. {fix}") from None
    if reason := _why_not(name, one):
        raise PackagesError(f"package {name!r}{f', which {by} requires,' if by else ''} {reason}")
    return one


def _why_not(name: str, one: Distribution) -> str:
    """Return why a distribution is not allowed in sandboxes; "" if it is."""
    is_ours = name.split("-")[0] == "agentrl" or any(entry.group.startswith("agentrl.") for entry in one.entry_points)
    if is_ours:
        return "is not allowed: programs could read how they are graded"
    if json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return f"is an editable install, which does not record its files. pip install {name} without -e"
    if one.read_text("RECORD") is None:
        return f"has no record of its files. pip install --force-reinstall {name}"
    return ""


def _requirements(one: Distribution) -> Iterator[tuple[str, bool]]:
    """Yield its requirements without extras, and whether they hold everywhere, that is without a marker."""
    for line in one.requires or ():
        requirement, _, marker = line.partition(";")
        if (name := NAME.match(requirement.strip())) and not re.search(r"\bextra\b", marker):
            yield _normal(name[0]), not marker


def _is_importable(parts: Parts) -> bool:
    """Return whether a RECORD entry belongs to a module or package, or to libraries that it loads."""
    first, module = parts[0], parts[0].partition(".")[0]
    if module in sys.stdlib_module_names or module in NOT_MODULES or first in ("..", "/"):
        return False
    return first.endswith(tuple(all_suffixes())) if len(parts) == 1 else not first.endswith(NOT_PACKAGES)


def _shown(folder: Path, listed: list[Parts]) -> Iterator[Path]:
    """Yield files and whole folders; of a folder shared with other distributions, only the listed entries."""
    for name, below in _by_first(listed).items():
        path = folder / name
        if () in below or _is_whole(path, below):
            yield path
        else:
            yield from _shown(path, below)


def _is_whole(folder: Path, listed: list[Parts]) -> bool:
    """Return whether the folder is a package, or all of its entries are listed."""
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

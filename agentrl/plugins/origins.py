"""Origins of the modules of packages: a process has one module of each name, whichever package is imported first."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from agentrl.errors import ConfigError

ADDED: set[str] = set()
"""What is in `sys.path` for the sake of source folders."""


def top_of(target: str) -> str:
    """Return the top-level module of `module.sub:Class`."""
    return target.partition(":")[0].partition(".")[0]


def search_first(folder: Path, target: str) -> None:
    """Let imports search a source folder first: where the module of `target` is, in it or in its folder src."""
    homes = [source.parent for source in _sources(folder, target)] or [folder]
    for home in map(str, reversed(homes)):
        if home in sys.path:
            sys.path.remove(home)
        else:
            ADDED.add(home)
        sys.path.insert(0, home)


def check_source(folder: Path, target: str) -> None:
    """Raise ConfigError if the imported module of `target` is not that of the source folder, which has one."""
    top, sources = top_of(target), _sources(folder, target)
    module = sys.modules.get(target.partition(":")[0]) or sys.modules.get(top)
    places = places_of(module.__spec__) if module else []
    if sources and places and not any(_is_in(source, place) for source in sources for place in places):
        raise _refusal(str(folder), top, places[0])


def check_installed(target: str, what: str) -> None:
    """Raise ConfigError if the module of `target` is, or would be, that of a source folder, not the installed one."""
    if not ADDED:
        return
    top = top_of(target)
    module = sys.modules.get(top)
    found, installed = places_of(module.__spec__ if module else find_spec(top)), places_of(_installed(top))
    if found and not set(map(_real, installed)) <= set(map(_real, found)):
        raise _refusal(what, top, *found[:1])


def places_of(spec: ModuleSpec | None) -> list[str]:
    """Return the file of a module, or the folders of a package without `__init__.py`."""
    return [spec.origin] if spec and spec.origin else list((spec and spec.submodule_search_locations) or ())


def _sources(folder: Path, target: str) -> list[Path]:
    """Return the package or the file that is the module of `target` in a source folder."""
    top = top_of(target)
    return [
        source
        for home in (folder, folder / "src")
        for source in (home / top, home / f"{top}.py")
        if (source.is_dir() if source.suffix != ".py" else source.is_file())
    ]


def _installed(top: str) -> ModuleSpec | None:
    """Return the module that a process finds without the source folders."""
    paths = [path for path in sys.path if path not in ADDED]
    finders = ((each, getattr(each, "find_spec", None)) for each in sys.meta_path)
    found = (find(top, paths if each is PathFinder else None) for each, find in finders if find)
    return next(filter(None, found), None)


def _is_in(source: Path, place: str) -> bool:
    return Path(place).is_relative_to(source) or _real(place).is_relative_to(source.resolve())


def _real(place: str) -> Path:
    return Path(place).resolve()


def _refusal(what: str, top: str, place: str = "elsewhere") -> ConfigError:
    return ConfigError(
        f"{what} cannot be loaded: this process has the module {top} of {place}, and Python keeps one of a name. "
        "Rename one of them, or give one an interpreter of its own with env.python (docs/run-an-env-elsewhere.md)"
    )

"""Origins of the modules of packages: a process has one module of each name, whichever package is imported first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from agentrl.errors import ConfigError

FOLDERS: dict[str, list[Path]] = {}
"""By top-level module the folders that contain the one of a source folder, which this process has imported."""
ADDED: set[str] = set()
"""What is in `sys.path` for the sake of source folders."""


def top_of(target: str) -> str:
    """Return the top-level module of `module.sub:Class`."""
    return target.partition(":")[0].partition(".")[0]


def search_first(folder: Path, target: str) -> list[Path]:
    """Let imports search a source folder first. Returns where in it the module of `target` is: there, or in src."""
    top = top_of(target)
    homes = [home for home in (folder, folder / "src") if (home / top).is_dir() or (home / f"{top}.py").is_file()]
    added = [str(home) for home in homes or [folder] if str(home) not in sys.path]
    sys.path[:0] = added
    ADDED.update(added)
    return homes


def check_source(folder: Path, target: str, homes: list[Path]) -> None:
    """Raise ConfigError if the imported module of `target` is in none of the homes, where the source folder has it."""
    if homes:
        top = top_of(target)
        places = places_of(sys.modules[top].__spec__)
        if not _is_in(homes, places):
            raise _refusal(str(folder), top, *places[:1])
        FOLDERS[top] = homes


def check_installed(target: str, what: str) -> None:
    """Raise ConfigError if the imported module of `target` is that of a source folder, and not the installed one."""
    top = top_of(target)
    if homes := FOLDERS.get(top):
        paths = [path for path in sys.path if path not in ADDED]
        found = (each.find_spec(top, paths if each is PathFinder else None) for each in sys.meta_path)
        if not _is_in(homes, places_of(next(filter(None, found), None))):
            raise _refusal(what, top, str(homes[0]))


def places_of(spec: ModuleSpec | None) -> list[str]:
    """Return the file of a module, or the folders of a package without `__init__.py`."""
    return [spec.origin] if spec and spec.origin else list((spec and spec.submodule_search_locations) or ())


def _is_in(homes: Sequence[Path], places: Sequence[str]) -> bool:
    return any(Path(place).resolve().is_relative_to(home.resolve()) for place in places for home in homes)


def _refusal(what: str, top: str, place: str = "elsewhere") -> ConfigError:
    return ConfigError(
        f"{what} cannot be loaded: this process has the module {top} of {place}, and Python keeps one of a name. "
        "Rename one of them, or give one an interpreter of its own with env.python (docs/run-an-env-elsewhere.md)"
    )

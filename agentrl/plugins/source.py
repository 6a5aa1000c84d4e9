"""The source of a plugin's package, apart from what was made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

BUILT = ("build", "dist", "*.egg-info", "__pycache__", ".*")
"""What is not copied: an older build beside the source would add files that a new build leaves out."""
RUN = ("config.toml", "manifest.json")
"""The files of every run, whose folder may be large and is no source."""


def copy_source(folder: Path, to: Path, *but: str) -> Path:
    """Copy the source of a package into `to` and return it, without builds, runs and names that match `but`.

    What contains `to` itself, such as a folder for temporary files beside the source, is left out.
    """
    matching, target = shutil.ignore_patterns(*BUILT, *but), to.resolve()

    def left_out(parent: str, names: list[str]) -> set[str]:
        runs = {name for name in names if all(Path(parent, name, file).is_file() for file in RUN)}
        own = {name for name in names if target.is_relative_to(Path(parent, name).resolve())}
        return matching(parent, names) | runs | own

    shutil.copytree(folder, to, ignore=left_out, dirs_exist_ok=True)
    return to

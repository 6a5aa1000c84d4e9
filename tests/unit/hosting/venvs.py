"""Interpreters for tests: virtual environments with a few of our packages and none of the others."""

from __future__ import annotations

import venv
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentrl.hosting.process import NEEDED


def made_venv(folder: Path, *packages: str) -> Path:
    """Return the interpreter of a new venv with what agentrl needs there, and `packages`, as links to ours."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    for name in _closure([*NEEDED, *packages]):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(str(installed.locate_file(top)))
    return folder / "bin" / "python"


def _closure(lines: list[str]) -> set[str]:
    """Return the names of distributions with all they require."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += map(Requirement, distribution(name).requires or ())
    return found

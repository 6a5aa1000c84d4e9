"""The checkpoints of a run: `step-000010` folders, whole or absent."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

NAME = re.compile(r"step-(\d{6,})")


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of `step` lies."""
    return checkpoints / f"step-{step:06d}"


def steps_in(checkpoints: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first; unfinished ones (other names) do not count."""
    if not checkpoints.is_dir():
        return []
    return sorted(int(match[1]) for path in checkpoints.iterdir() if (match := NAME.fullmatch(path.name)))


def step_of(model: Path) -> int | None:
    """The step of the checkpoint that a model's folder lies in, None where it lies in none."""
    match = NAME.fullmatch(model.parent.name) or NAME.fullmatch(model.name)
    return int(match[1]) if match else None


def prune(checkpoints: Path, keep: int) -> None:
    """Remove all but the `keep` newest."""
    for step in steps_in(checkpoints)[:-keep]:
        shutil.rmtree(folder_of(checkpoints, step))

"""The checkpoints of a run: `step-000010` folders, whole or absent."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder

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


def of_newest(config: Config) -> Config:
    """The same configuration; where its model is the folder of a run, with the newest checkpoint of that run.

    Raises ConfigError for a run that has no checkpoint.
    """
    path = Path(config.model.name).expanduser()
    run = RunFolder(path.resolve())
    if not (config.model.name and run.is_training):
        return config
    steps = steps_in(run.checkpoints)
    if not steps:
        raise ConfigError(f"run {path} has no checkpoint yet (checkpoint.every sets how often one is written)")
    name = str(folder_of(run.checkpoints, steps[-1]))
    return config.model_copy(update={"model": config.model.model_copy(update={"name": name})})


def prune(checkpoints: Path, keep: int) -> None:
    """Remove all but the `keep` newest."""
    for step in steps_in(checkpoints)[:-keep]:
        shutil.rmtree(folder_of(checkpoints, step))

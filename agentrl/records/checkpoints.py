"""Checkpoints of a run: folders such as `step-000010`, whole or absent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from agentrl.config.schema import Config
from agentrl.config.values import expanded
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.manifest import newest_manifest

NAME = re.compile(r"step-(\d{6,})")
ENVIRONMENTS = "environments.json"


def folder_of(checkpoints: Path, step: int) -> Path:
    """Return the folder of the checkpoint of `step`."""
    return checkpoints / f"step-{step:06d}"


def steps_in(checkpoints: Path) -> list[int]:
    """Return the steps that have a checkpoint, oldest first.

    Unfinished checkpoints have other names and do not count.
    """
    if not checkpoints.is_dir():
        return []
    return sorted(int(match[1]) for path in checkpoints.iterdir() if (match := NAME.fullmatch(path.name)))


def step_of(model: Path) -> int | None:
    """Return the step of the checkpoint that contains a model's folder, None if there is none."""
    match = NAME.fullmatch(model.parent.name) or NAME.fullmatch(model.name)
    return int(match[1]) if match else None


def of_newest(config: Config) -> Config:
    """Return the configuration, with the newest checkpoint of a run as model if its model is the folder of that run.

    Raises ConfigError for a run that has no checkpoint, and for a checkpoint that its run does not have.
    """
    path = expanded(config.model.name)
    run = RunFolder(path.resolve())
    if not (config.model.name and run.is_training):
        _refuse_missing(path.resolve())
        return config
    steps = steps_in(run.checkpoints)
    if not steps:
        raise ConfigError(f"run {path} has no checkpoint yet (checkpoint.every sets how often one is written)")
    name = str(folder_of(run.checkpoints, steps[-1]))
    return config.model_copy(update={"model": config.model.model_copy(update={"name": name})})


def _refuse_missing(model: Path) -> None:
    """Raise ConfigError if a model is to be in a checkpoint that its run does not have."""
    for checkpoint in (model, model.parent):
        run = RunFolder(checkpoint.parent.parent)
        if checkpoint.parent == run.checkpoints and run.is_training and not checkpoint.exists():
            known = ", ".join(folder_of(run.checkpoints, step).name for step in steps_in(run.checkpoints))
            raise ConfigError(f"run {run.path} has no checkpoint {checkpoint.name}; it has {known or 'none yet'}")


def write_environments(checkpoint: Path, run: RunFolder) -> None:
    """Write the environments of the run's manifest beside the progress in a checkpoint; nothing without a manifest."""
    if manifest := newest_manifest(run):
        write_atomic(checkpoint / ENVIRONMENTS, msgspec.json.format(msgspec.json.encode(manifest.envs)) + b"\n")


def discard_partial(checkpoints: Path) -> None:
    """Remove what saves that failed or were killed have left, which may fill the disk."""
    for path in checkpoints.glob("step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def prune(checkpoints: Path, keep: int, spared: Collection[int] = ()) -> list[OSError]:
    """Remove all checkpoints but the `keep` newest and those of the steps `spared`, and those that are not whole.

    Returns an error for each whole one that cannot be removed. No checkpoint is being written meanwhile.
    """
    discard_partial(checkpoints)
    failures = []
    for step in steps_in(checkpoints)[:-keep]:
        if step in spared:
            continue
        try:
            shutil.rmtree(folder_of(checkpoints, step))
        except OSError as error:
            failures.append(error)
    return failures

"""What `agentrl eval` is to score: a model of a run is scored in that run's environment, with its settings."""

from __future__ import annotations

from pathlib import Path

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.run.checkpoints import folder_of, steps_in
from agentrl.run.folder import RunFolder
from agentrl.settings import read

MODEL_FLAGS = ("model", "model.name")
ENV_FLAGS = ("env", "env.name")
DEPTH = 3  # a run's checkpoints/step-000010/model


def to_score(file: Path | None, flags: list[tuple[str, str]]) -> Config:
    """The configuration of an evaluation, from the TOML file and the flags.

    A model that a run wrote brings that run's configuration, unless a file or an environment is named; a run stands for
    its last checkpoint.
    """
    name = next((text for flag, text in flags if flag in MODEL_FLAGS), "")
    run = run_of(Path(name).expanduser()) if name else None
    if run is None:
        return read(file, flags).config
    model = str(last_of(run) if Path(name).expanduser().resolve() == run.path else Path(name).expanduser().absolute())
    flags = [*(flag for flag in flags if flag[0] not in MODEL_FLAGS), ("model", model)]
    if file or any(flag in ENV_FLAGS for flag, _ in flags):
        return read(file, flags).config
    config = read(run.config, flags).config
    return config if any(flag == "out" for flag, _ in flags) else config.model_copy(update={"out": None})


def run_of(path: Path) -> RunFolder | None:
    """The run that a folder is, or lies in; None for any other."""
    folders = [path.resolve(), *path.resolve().parents][: DEPTH + 1] if path.is_dir() else []
    return next((run for run in map(RunFolder, folders) if run.config.is_file() and run.ledger.is_file()), None)


def last_of(run: RunFolder) -> Path:
    """The newest checkpoint of a run. Raises ConfigError when there is none."""
    steps = steps_in(run.checkpoints)
    if not steps:
        raise ConfigError(f"run {run.path} has no checkpoint to score (checkpoint.every says how often one is written)")
    return folder_of(run.checkpoints, steps[-1])

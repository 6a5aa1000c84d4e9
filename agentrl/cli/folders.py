"""The run folder that a command is given."""

from __future__ import annotations

from pathlib import Path

from agentrl.errors import ConfigError, did_you_mean
from agentrl.records.folder import RunFolder


def existing_run(path: Path) -> Path:
    """`path` when a run lies there, else a ConfigError with the nearest run that does."""
    if RunFolder(path).config.is_file():
        return path
    runs = [str(file.parent) for place in (path, path.parent) for file in place.glob("*/config.toml")]
    raise ConfigError(f"no run in {path}: it has no config.toml.{did_you_mean(str(path), runs)}")


def trained_run(path: Path) -> Path:
    """`path` when a run that trains lies there; ConfigError for an evaluation, and for a run that never began."""
    if not RunFolder(existing_run(path)).ledger.is_file():
        config = RunFolder(path).config
        raise ConfigError(f"nothing was trained in {path}: begin with `agentrl train --config {config} --out OTHER`")
    return path

"""The run folder that a command is given."""

from __future__ import annotations

from pathlib import Path

from agentrl.errors import ConfigError, did_you_mean
from agentrl.run.folder import RunFolder


def existing_run(path: Path) -> Path:
    """`path` when a run lies there, else a ConfigError with the nearest run that does."""
    if RunFolder(path).config.is_file():
        return path
    runs = [str(folder.parent) for folder in path.parent.glob("*/config.toml")]
    raise ConfigError(f"no run in {path}: it has no config.toml.{did_you_mean(str(path), runs)}")

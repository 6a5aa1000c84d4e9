"""The run folder that a command is given."""

from __future__ import annotations

from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder, existing_run


def trained_run(path: Path) -> Path:
    """`path` when a run that trains lies there; ConfigError for an evaluation, and for a run that never began."""
    if not RunFolder(existing_run(path)).ledger.is_file():
        config = RunFolder(path).config
        raise ConfigError(f"nothing was trained in {path}: begin with `agentrl train --config {config} --out OTHER`")
    return path

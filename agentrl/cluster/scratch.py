"""What lies outside a run's folder while it runs: staged weights, and sockets, whose paths must be short."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from agentrl.weights.staging import discard_leftovers, folder_key


def scratch_of(folder: Path) -> Path:
    """Where the sockets of the run in `folder` lie; after a kill, a resume finds and removes it."""
    return Path(tempfile.gettempdir()) / f"agentrl-{folder_key(folder)}"


def discard_scratch(folder: Path) -> None:
    """Remove all that lies outside. Idempotent."""
    discard_leftovers(folder)
    shutil.rmtree(scratch_of(folder), ignore_errors=True)

"""What lies outside a run's folder while it runs: its engines' sockets, whose paths must be short."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path


def scratch_of(folder: Path) -> Path:
    """The folder for such files of the run in `folder`; after a kill, a resume finds and removes it."""
    return Path(tempfile.gettempdir()) / f"agentrl-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:12]}"


def discard_scratch(folder: Path) -> None:
    """Remove it. Idempotent."""
    shutil.rmtree(scratch_of(folder), ignore_errors=True)

"""A lock between processes."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentrl.errors import DeadlineError

POLL_S = 0.2


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[IO[str]]:
    """Hold an exclusive lock on the file `path`, which is created; yields the open file.

    A child process that inherits the file holds the lock too, until it ends. Raises DeadlineError if another process
    holds it longer than `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DeadlineError(f"another process has held {path} for {timeout_s:g} s") from None
                time.sleep(POLL_S)
        yield file

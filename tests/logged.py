"""A command in a process of its own, whose output is in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
POLL_S = 0.02


class Logged:
    """A process that runs, or the last one that did; a test waits for what it prints or for its end."""

    process: subprocess.Popen[Any]
    log: Path

    def start_logged(self, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start a command in a session of its own, with these variables besides ours."""
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                words, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | (env or {})
            )

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self.log.read_text()

    def until(self, condition: Callable[[], T], deadline_s: float = 400.0) -> T:
        """What `condition` gives once that is true; fails when the command ends before or time runs out."""
        ends_at = time.monotonic() + deadline_s
        while not (value := condition()):
            assert self.process.poll() is None, f"the command ended with {self.process.returncode}:\n{self.said}"
            assert time.monotonic() < ends_at, f"waited {deadline_s:.0f} s in vain:\n{self.said}"
            time.sleep(POLL_S)
        return value

    def end(self, deadline_s: float = 400.0) -> int:
        """The exit code of the command, once it ends by itself."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s:.0f} s:\n{self.said}") from None

    def kill(self) -> None:
        """kill -9 of the command itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

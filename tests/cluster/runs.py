"""Small runs over hosts: an environment, flags, and commands whose output is in a file."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.hosts import Host, missing

AGENTRL = (sys.executable, "-m", "agentrl")
NEEDS_HOSTS = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"no hosts can be made here: {missing()}"),
]


def flags(shared: Path, out: str, **sections: object) -> list[str]:
    given = {
        "steps": 3, "prompts": 2, "group-size": 2, "max-tokens": 4, "model.max_context": 64, "eval.tasks": 2,
        "eval.samples": 2, "engine.kv_cache_gib": 1, "engine.max_num_seqs": 8, "engine.threads": 1,
        "learner.threads": 1, "track.tensorboard": "false", **sections,
    }  # fmt: skip
    words = ["--env", str(shared / "env.py"), "--model", str(shared / "model"), "--out", str(shared / out)]
    return words + [word for key, value in given.items() for word in (f"--{key}", str(value))]


@dataclass
class Command:
    """A command on a host; what it prints is in a file."""

    host: Host
    log: Path
    words: list[str]

    def __post_init__(self) -> None:
        with self.log.open("w") as log:
            command = self.host.command(*AGENTRL, *self.words)
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until(self, condition: Callable[[], bool], deadline_s: float = 400.0) -> None:
        ends_at = time.monotonic() + deadline_s
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.said}"
            assert time.monotonic() < ends_at, f"waited {deadline_s:.0f} s in vain:\n{self.said}"
            time.sleep(0.1)

    def steps(self, count: int) -> None:
        """Wait until so many steps more are done."""
        done = self.said.count("\nstep ") + count
        self.until(lambda: self.said.count("\nstep ") >= done)

    def end(self, deadline_s: float = 400.0) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s:.0f} s:\n{self.said}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10.0)

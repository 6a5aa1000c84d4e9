"""Small runs over hosts: an environment, flags, and commands whose output is in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentrl.records.folder import RunFolder
from agentrl.report.summary import read
from tests.cluster.hosts import Host, missing
from tests.logged import Logged

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


class Command(Logged):
    """An `agentrl` command on a host."""

    def __init__(self, host: Host, log: Path, words: list[str]) -> None:
        self.host = host
        self.start_logged(host.command(*AGENTRL, *words), log)

    def steps(self, count: int) -> None:
        """Wait until so many steps more are done."""
        done = self.said.count("\nstep ") + count
        self.until(lambda: self.said.count("\nstep ") >= done)

    def interrupt(self) -> None:
        """Stop the run that trains on the host as Ctrl-C does, and wait until it has ended as it should."""
        self.host.run("pkill", "-INT", "-f", "agentrl train")
        assert self.end() == 130, self.said

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


def assert_lawful(run: RunFolder) -> None:
    """Assert that a run has a summary, and that the conservation law holds in it."""
    summary = read(run)
    assert summary is not None
    assert summary.conservation.holds

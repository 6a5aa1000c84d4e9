"""Training over several hosts: engines, learner ranks and rollout workers each on hosts of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentrl.cluster.processes import ProcessRegistry
from agentrl.metrics.trackers import read_steps
from agentrl.records.folder import RunFolder
from agentrl.report.summary import read
from agentrl.weights.staging import staging_prefix
from tests.cluster.hosts import Host, hosts, missing, shared_folder
from tests.tiny import tiny_model

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=f"no hosts can be made here: {missing()}"),
]

AGENTRL = (sys.executable, "-m", "agentrl")
ENV = """
from agentrl.env import Env, Message, Task, reward

class Lengths(Env):
    def tasks(self, split):
        return [Task(f"{split}/{n}", n) for n in range(16)]

    def setup(self, task, ctx):
        return [Message(role="user", content=f"Say {task.data}.")]

    @reward
    def length(self, ctx):
        return float(len(ctx.turns[-1].text) % 3)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_folder() as folder:
        (folder / "env.py").write_text(ENV)
        tiny_model(folder / "model")
        yield folder


@pytest.fixture
def three() -> Iterator[list[Host]]:
    """A Ray cluster: `head` has no part, `left` the resource left, `right` the resource right."""
    with hosts("head", "left", "right") as found:
        head, *others = found
        head.start_ray("head")
        for host in others:
            host.join_ray(head, host.name)
        yield found


def flags(shared: Path, out: str, **sections: object) -> list[str]:
    given = {
        "steps": 3, "prompts": 2, "group-size": 2, "max-tokens": 4, "model.max_context": 64, "eval.tasks": 2,
        "eval.samples": 2, "engine.kv_cache_gib": 1, "engine.max_num_seqs": 8, "engine.threads": 1,
        "learner.threads": 1, "track.tensorboard": "false", **sections,
    }  # fmt: skip
    words = ["--env", str(shared / "env.py"), "--model", str(shared / "model"), "--out", str(shared / out)]
    return words + [word for key, value in given.items() for word in (f"--{key}", str(value))]


@pytest.fixture
def five() -> Iterator[list[Host]]:
    """A Ray cluster: two hosts for the learner, two for engines."""
    with hosts("head", "learner-1", "learner-2", "engine-1", "engine-2") as found:
        head, *others = found
        head.start_ray("head")
        for host in others:
            host.join_ray(head, host.name.partition("-")[0])
        yield found


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

    def until(self, condition: Callable[[], bool], deadline_s: float = 240.0) -> None:
        ends_at = time.monotonic() + deadline_s
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.said}"
            assert time.monotonic() < ends_at, f"waited {deadline_s:.0f} s in vain:\n{self.said}"
            time.sleep(0.1)

    def steps(self, count: int) -> None:
        """Wait until so many steps more are done."""
        done = self.said.count("\nstep ") + count
        self.until(lambda: self.said.count("\nstep ") >= done)

    def end(self, deadline_s: float = 240.0) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s:.0f} s:\n{self.said}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10.0)


def test_what_a_cluster_loses_is_replaced_or_named_and_resumed(five: list[Host], shared: Path) -> None:
    head, _, learner_2, engine_1, engine_2 = five
    placed = {"engine.nodes": "engine", "engine.count": 2, "learner.nodes": "learner", "learner.ranks": 2}
    given = flags(shared, "run", **placed, **{"steps": 1000, "checkpoint.every": 2, "weights.publish_timeout_s": 30})
    folder = RunFolder(shared / "run")
    run = Command(head, shared / "run.log", ["train", *given])
    try:
        run.steps(3)
        where = {process.role: process.host for process in ProcessRegistry(folder.path).registered()}
        assert {where["learner rank 0"], where["learner rank 1"]} == {"learner-1", "learner-2"}
        assert {where["engine 0"], where["engine 1"]} == {"engine-1", "engine-2"}

        engine_1.unplug()
        run.until(lambda: "will be replaced" in run.said)
        engine_1.plug_in()
        run.until(lambda: "is back" in run.said)
        run.steps(2)

        before = run.said.count("is back")
        engine_2.kill()
        run.until(lambda: run.said.count("is back") > before)
        run.steps(2)

        learner_2.kill()
        assert run.end() == 2, run.said
        assert "on learner-2" in run.said
        assert "agentrl resume" in run.said
    finally:
        run.close()
    again = Command(head, shared / "again.log", ["resume", str(folder.path), "--steps", "8"])
    try:
        assert again.end() == 0, again.said
    finally:
        again.close()


def test_a_run_with_every_role_on_another_host(three: list[Host], shared: Path) -> None:
    head, *_ = three
    placed = {"engine.nodes": "right", "engine.count": 2, "learner.nodes": "left", "rollout.nodes": "head"}
    said = head.run(*AGENTRL, "train", *flags(shared, "run", **placed), timeout_s=600.0)
    assert "finished 3 steps" in said
    run = RunFolder(shared / "run")
    summary = read(run)
    assert summary is not None
    assert summary.conservation.holds
    assert [step.step for step in read_steps(run)] == [1, 2, 3]
    where = {process.role: process.host for process in ProcessRegistry(run.path).registered()}
    roles = {"engine 0": "right", "engine 1": "right", "learner rank 0": "left", "rollout worker 0": "head"}
    assert {role: where[role] for role in roles} == roles
    for host in three:
        left = host.run("find", "/dev/shm", "-name", f"{staging_prefix(run.path)}*")
        assert left == "", f"weights stay on {host.name}"

"""Training over several hosts: engines, learner ranks and rollout workers each on hosts of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
        head.start_ray()
        for host in others:
            host.join_ray(head)
        yield found


def flags(shared: Path, out: str, **sections: object) -> list[str]:
    given = {
        "steps": 3, "prompts": 2, "group-size": 2, "max-tokens": 4, "model.max_context": 64, "eval.tasks": 2,
        "eval.samples": 2, "engine.kv_cache_gib": 1, "engine.max_num_seqs": 8, "engine.threads": 1,
        "learner.threads": 1, "track.tensorboard": "false", **sections,
    }  # fmt: skip
    words = ["--env", str(shared / "env.py"), "--model", str(shared / "model"), "--out", str(shared / out)]
    return words + [word for key, value in given.items() for word in (f"--{key}", str(value))]


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

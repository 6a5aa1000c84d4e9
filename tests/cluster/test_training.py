"""Training over several hosts: engines, learner ranks and rollout workers each on hosts of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.cluster.processes import ProcessRegistry
from agentrl.metrics.step import StepRecord
from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import read_jsonl
from agentrl.records.restarts import read_restarts
from agentrl.weights.staging import staging_prefix
from tests.cluster.hosts import Host, hosts, join_all
from tests.cluster.runs import AGENTRL, NEEDS_HOSTS, Command, assert_lawful, flags

pytestmark = NEEDS_HOSTS


STORES = """
import sys
import time
import ray
from ray._private.internal_api import node_stats

def store(node):
    return node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False).store_stats

ray.init("auto", log_to_driver=False, configure_logging=False)
nodes = {node["NodeManagerHostname"]: node for node in ray.nodes() if node["Alive"]}
created, ends_at = set(), time.monotonic() + 60
while not created.issuperset(sys.argv[1:]) and time.monotonic() < ends_at:
    created = {name for name, node in nodes.items() if store(node).cumulative_created_bytes > 1 << 20}
    time.sleep(0.02)
print(*sorted(created))
ends_at = time.monotonic() + 60
while nodes and time.monotonic() < ends_at:
    nodes = {name: node for name, node in nodes.items() if store(node).object_store_bytes_used}
    time.sleep(0.02)
print("still in use:", *sorted(nodes))
"""

CUT_S = 25.0
OURS = ("ray::_", "VLLM::", "-m agentrl")
"""What is in the command lines of a run's processes: those of Ray's actors, of engines and of the driver."""


@pytest.fixture
def three() -> Iterator[list[Host]]:
    """A Ray cluster: `head` has no part, `left` the resource left, `right` the resource right."""
    with hosts("head", "left", "right") as found:
        head, *others = found
        head.start_ray("head")
        join_all(head, {host: host.name for host in others})
        yield found


@pytest.fixture
def five() -> Iterator[list[Host]]:
    """A Ray cluster: two hosts for the learner, two for engines."""
    with hosts("head", "learner-1", "learner-2", "engine-1", "engine-2") as found:
        head, *others = found
        head.start_ray("head")
        join_all(head, {host: host.name.partition("-")[0] for host in others})
        yield found


def where(run: RunFolder) -> dict[str, str]:
    """The host of the last process of each role."""
    return {process.role: process.host for process in ProcessRegistry(run.path).registered()}


def test_a_run_with_every_role_on_another_host_and_an_evaluation_of_it(three: list[Host], shared: Path) -> None:
    head, *_ = three
    placed = {"engine.nodes": "right", "engine.count": 2, "learner.nodes": "left", "rollout.nodes": "head"}
    trained = Command(head, shared / "run.log", ["train", *flags(shared, "run", **placed)])
    try:
        assert trained.end() == 0
    finally:
        trained.close()
    assert "finished 3 steps" in trained.said
    assert "A worker died" not in trained.said, "Ray reports an ordinary end"
    run = RunFolder(shared / "run")
    assert_lawful(run)
    assert [step.step for step in read_steps(run)] == [1, 2, 3]
    roles = {"engine 0": "right", "engine 1": "right", "learner rank 0": "left", "rollout worker 0": "head"}
    assert where(run).items() >= roles.items()

    evaluation = RunFolder(shared / "evaluation")
    placed = {"engine.nodes": "left", "engine.count": 1, "out": evaluation.path}
    words = [str(run.path), *(word for key, value in placed.items() for word in (f"--{key}", str(value)))]
    head.run(*AGENTRL, "eval", *words, timeout_s=600.0)
    [record] = read_evaluations(evaluation)
    assert (record.tasks, record.samples, record.invalid, record.unanswered) == (2, 2, 0, 0)
    assert where(evaluation).items() >= {"engine 0": "left", "rollout worker 0": "head"}.items()

    for host in three:
        assert host.run("ls", "-A", "/dev/shm") == "", f"weights stay on {host.name}"
        running = [line for line in host.run("ps", "-eo", "args=").splitlines() if not line.endswith("<defunct>")]
        assert not [line for line in running if any(word in line for word in OURS)], host.name


def test_what_a_killed_run_left_is_removed_on_every_host(three: list[Host], shared: Path) -> None:
    head, left, _ = three
    run = shared / "run"
    run.mkdir()
    (run / "config.toml").write_text("")
    code = (
        "import os, sys, time; from pathlib import Path; from agentrl.cluster.processes import ProcessRegistry;"
        f"ProcessRegistry(Path({str(run)!r})).register('engine 0', os.getpid()); print(flush=True); time.sleep(600)"
    )
    staged = f"/dev/shm/{staging_prefix(run)}x.bin"
    left.run("touch", staged)
    with subprocess.Popen(left.command(sys.executable, "-c", code), stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        [engine] = ProcessRegistry(run).registered()
        assert head.run(*AGENTRL, "gc", str(run)) == f"left: engine 0 (pid {engine.pid}) of {run} ended\n"
        waiting.wait(10)
    assert left.run("find", staged.rpartition("/")[0], "-name", Path(staged).name) == ""
    assert head.run(*AGENTRL, "gc", str(run)) == "nothing was left behind\n"


def test_a_run_folder_that_other_hosts_do_not_see_is_refused(three: list[Host], shared: Path) -> None:
    """`left` has a folder of that name, such as a copy."""
    head, left, _ = three
    left.run("sh", "-c", "mkdir /tmp/home/run && touch /tmp/home/run/config.toml /tmp/home/run/driver.mark")
    words = flags(shared, "run", **{"learner.nodes": "left"})
    words[words.index("--out") + 1] = "/tmp/home/run"
    run = Command(head, shared / "unshared.log", ["train", *words])
    try:
        assert run.end() == 2
    finally:
        run.close()
    assert "the machine left has a folder /tmp/home/run of its own: put run folders and models on a file" in run.said


def test_what_a_cluster_loses_is_replaced_or_named_and_resumed(five: list[Host], shared: Path) -> None:
    head, learner_1, learner_2, engine_1, engine_2 = five
    placed = {"engine.nodes": "engine", "engine.count": 4, "learner.nodes": "learner", "learner.ranks": 2}
    placed |= {"rollout.nodes": "engine", "rollout.workers": 4}
    given = flags(shared, "run", **placed, **{"steps": 1000, "checkpoint.every": 2, "engine.restarts": 4})
    engines, workers = ([f"{role} {number}" for number in range(4)] for role in ("engine", "rollout worker"))
    folder = RunFolder(shared / "run")
    run = Command(head, shared / "run.log", ["train", *given])
    try:
        run.steps(3)
        at = where(folder)
        assert {at["learner rank 0"], at["learner rank 1"]} == {"learner-1", "learner-2"}
        assert {at[engine] for engine in engines} == {"engine-1", "engine-2"}
        reached = {at["learner rank 0"], "engine-1", "engine-2"}
        stores = head.run(sys.executable, "-c", STORES, *sorted(reached), timeout_s=180.0)
        assert reached <= {*stores.splitlines()[0].split()}
        assert stores.splitlines()[1:] == ["still in use:"], "objects stay after publications"

        count = sum(at[process] == "engine-1" for process in (*engines, *workers))
        engine_1.unplug()
        run.until(lambda: run.said.count("is back") >= count)
        run.steps(2)
        engine_1.plug_in()
        engine_1.rejoin_ray(head, "engine")

        at, before = where(folder), run.said.count("is back")
        assert {at[process] for process in (*engines, *workers)} == {"engine-2"}
        engine_2.kill()
        run.until(lambda: run.said.count("is back") >= before + 8)
        run.steps(2)
        lost = {one.process for one in read_restarts(folder) if one.why.startswith(f"{one.process} on engine-2: ")}
        assert lost >= {*workers}
        at = where(folder)
        assert {at[worker] for worker in workers} == {"engine-1"}

        learner_2.kill()
        assert run.end() == 2, run.said
        assert "on learner-2" in run.said
        assert "agentrl resume" in run.said
    finally:
        run.close()
    again = Command(head, shared / "again.log", ["resume", str(folder.path)])
    try:
        again.steps(3)
        head.kill()
    finally:
        again.close()

    learner_1.rejoin_ray(None, "learner")
    engine_1.rejoin_ray(learner_1, "engine")
    last = str(read_steps(folder)[-1].step + 2)
    learner_1.run(*AGENTRL, "resume", str(folder.path), "--steps", last, timeout_s=600.0)
    assert_lawful(folder)


def test_weights_reach_engines_of_other_hosts_although_shared_memory_is_full(three: list[Host], shared: Path) -> None:
    """Ray's object store is there too; what it has no room for goes through the folder of the run."""
    head, left, right = three
    placed = {"engine.nodes": "right", "learner.nodes": "left", "rollout.nodes": "head"}
    fill(left)
    run = Command(head, shared / "run.log", ["train", *flags(shared, "run", **placed, steps=1000)])
    folder = RunFolder(shared / "run")
    try:
        run.steps(2)
        fill(right)
        run.steps(2)
        run.interrupt()
    finally:
        run.close()
    assert read_restarts(folder) == []
    assert list(folder.path.glob(f"{staging_prefix(folder.path)}*")) == []
    assert_lawful(folder)


def test_a_run_waits_for_a_learners_host_that_is_cut_off_for_a_while(shared: Path) -> None:
    """Ray drops a connection that was cut for 20 s, and answers on their way with it."""
    placed = {"engine.nodes": "right", "learner.nodes": "left", "rollout.nodes": "head", "checkpoint.every": 1}
    larger = {"prompts": 8, "group-size": 8, "max-tokens": 200, "model.max_context": 320, "steps": 1000}
    folder = RunFolder(shared / "run")
    with hosts("head", "left", "right", are_patient=True) as (head, left, right):
        head.start_ray("head")
        join_all(head, {left: "left", right: "right"})
        run = Command(head, shared / "run.log", ["train", *flags(shared, "run", **placed, **larger)])
        try:
            run.steps(2)
            left.unplug()
            time.sleep(CUT_S)
            left.plug_in()
            run.steps(3)
            run.interrupt()
        finally:
            run.close()
    assert read_restarts(folder) == []
    rows = [step.step for step in read_jsonl(folder.metrics, StepRecord)]
    assert rows == [*range(1, len(rows) + 1)], "a step was trained again"
    assert_lawful(folder)


def fill(host: Host) -> None:
    """Leave half a MiB of a host's shared memory."""
    filler = "/dev/shm/filler"
    host.run("sh", "-c", f"dd if=/dev/zero of={filler} bs=64k 2>/dev/null; truncate -s -512K {filler}")


@pytest.mark.long
def test_a_host_of_the_critic_that_is_lost_is_named_and_the_run_goes_on_elsewhere(
    three: list[Host], shared: Path
) -> None:
    head, _, right = three
    placed = {"engine.nodes": "left", "rollout.nodes": "left", "learner.nodes": "left", "critic.nodes": "right"}
    critic = {"algo": "ppo", "critic.placement": "separate"}
    folder = RunFolder(shared / "run")
    given = flags(shared, "run", **placed, **critic, **{"steps": 1000, "checkpoint.every": 1})
    run = Command(head, shared / "run.log", ["train", *given])
    try:
        run.steps(2)
        assert where(folder)["critic rank 0"] == "right"
        right.kill()
        assert run.end() == 2, run.said
        assert "on right" in run.said
        assert "agentrl resume" in run.said
    finally:
        run.close()
    last = str(read_steps(folder)[-1].step + 2)
    head.run(*AGENTRL, "resume", str(folder.path), "--critic.nodes", "left", "--steps", last, timeout_s=600.0)
    assert where(folder)["critic rank 0"] == "left"
    assert_lawful(folder)

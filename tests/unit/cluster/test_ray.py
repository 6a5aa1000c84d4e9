"""Ray that does not start ends a run with what to do, whatever it raises."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import _raylet
from ray.exceptions import ActorUnavailableError, RuntimeEnvSetupError

from agentrl.cluster.placement import Place
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray import actors as calls
from agentrl.cluster.ray import cluster as module
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.ray.nodes import Node
from agentrl.errors import AgentRLError, DeadlineError, EngineDiedError, LearnerDiedError, RunError

TIMED_OUT = Exception(
    "The current node timed out during startup. This could happen because some of the raylet failed to startup."
)


@pytest.mark.parametrize("error", [TIMED_OUT, ConnectionError("no GCS"), SystemExit(1)], ids=repr)
def test_ray_that_does_not_start_is_reported_with_what_to_do(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    def init(**_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise error

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunError, match=r"Ray did not start: .*agentrl doctor.*start the command again"):
        Cluster("test", ProcessRegistry(Path()))
    assert ended
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_ray_of_the_caller_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("Ray was shut down"))
    with pytest.raises(RunError, match=r"initialised in this process already, .*call ray\.shutdown\(\)"):
        Cluster("test", ProcessRegistry(Path()))


async def test_a_process_of_the_caller_does_not_belong_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def sleeper() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "600"])
        started.append(process)
        return process

    monkeypatch.setattr(ray, "init", lambda **_: sleeper())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    registry = ProcessRegistry(tmp_path)
    try:
        sleeper()
        cluster = Cluster("test", registry)
        sleeper()
        await cluster.ready(5.0)
        assert [process.pid for process in registry.registered()] == [started[1].pid]
        cluster.close()  # restores the environment, which later tests inherit
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(socket, "create_connection", lambda *_: socket.socket())
    monkeypatch.setattr(_raylet, "GcsClient", lambda *, address: None)  # it would look for the head for 40 s
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with pytest.raises(RunError, match=r"Ray did not start: no route\. RAY_ADDRESS is head:6379: check that cluster"):
        Cluster("test", ProcessRegistry(Path()))


def test_an_address_where_nothing_listens_is_reported_before_ray_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:  # bound and not listening: a connection to it is refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was started"))
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(RunError, match=rf"Connection refused\. RAY_ADDRESS is {address}: check that cluster"):
            Cluster("test", ProcessRegistry(Path()))


def test_ray_is_left_if_it_cannot_reserve_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ValueError("too small a share")

    closed: list[bool] = []
    monkeypatch.setattr(module, "Connection", lambda *_: SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(module, "placement_group", refuses)
    with pytest.raises(ValueError, match="too small a share"):
        Cluster("test", ProcessRegistry(Path()), [{"GPU": 1e-5}])
    assert closed == [True]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The resources of a cluster that this process has joined."""
    there = {"CPU": 4.0}
    monkeypatch.setattr(module, "Connection", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(module, "is_local", lambda: False)
    monkeypatch.setattr(module, "nodes", list)
    monkeypatch.setattr(ray, "cluster_resources", lambda: dict(there))
    monkeypatch.setattr(module, "NODES_S", 0.01)
    monkeypatch.setattr(module, "NOTE_S", 0.0)
    return there


async def test_a_run_waits_for_the_machines_that_its_keys_name_and_says_so(joined: dict[str, float]) -> None:
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        joined["fast"] = 1.0  # a machine joins

    keys = {"engine.nodes": "fast", "rollout.nodes": "fast"}
    await Cluster("test", ProcessRegistry(Path()), nodes=keys).ready(30.0, note)
    assert said == [
        "waiting up to 30 s for the cluster: no machine has the resource fast (engine.nodes), the resource fast "
        "(rollout.nodes); start Ray on one with --resources='{\"fast\": 1}'"
    ]


async def test_machines_that_do_not_come_end_the_run_with_what_to_do(joined: dict[str, float]) -> None:
    joined["fast"] = 1.0
    cluster = Cluster("test", ProcessRegistry(Path()), nodes={"engine.nodes": "fast", "learner.nodes": "big"})
    with pytest.raises(
        RunError, match=r"not ready within 0 s: no machine has the resource big \(learner.nodes\); start"
    ):
        await cluster.ready(0.05)


async def test_a_run_on_this_machine_alone_refuses_keys_that_name_others(
    joined: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_local", lambda: True)
    with pytest.raises(RunError, match=r"without RAY_ADDRESS .* the resource fast \(rollout.nodes\): set it to"):
        await Cluster("test", ProcessRegistry(Path()), nodes={"rollout.nodes": "fast"}).ready(30.0)


@dataclass(eq=False)
class Spawned:
    """A process in place of an actor's."""

    name: str
    placed: dict[str, Any]
    killed: list[str]

    def kill(self) -> None:
        self.killed.append(self.name)


async def test_processes_are_spread_evenly_over_the_machines(
    joined: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [Node(f"{n:056x}", f"node-{n}", f"10.0.0.{n}") for n in range(3)]
    monkeypatch.setattr(module, "nodes", lambda: there)
    monkeypatch.setattr(module, "start_actor", lambda spec, **placed: Spawned(spec.name, placed, []))
    cluster = Cluster("test", ProcessRegistry(Path()))
    await cluster.ready(30.0)
    actors: list[Any] = [cluster.spawn(ActorSpec("one", object)) for _ in range(6)]
    options = [actor.placed for actor in actors]
    places = [each["scheduling_strategy"] for each in options]
    assert Counter(place.node_id for place in places) == {node.id: 2 for node in there}
    assert all(place.soft for place in places)
    assert all(each["memory"] > 0 for each in options), "Ray heeds no soft affinity of what needs no resource"
    named: Any = cluster.spawn(ActorSpec("one", object, place=Place(nodes="fast")))
    assert named.placed["scheduling_strategy"] == "SPREAD"


async def test_ray_ends_what_was_spawned_so_that_it_reports_no_loss(
    joined: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []
    monkeypatch.setattr(module, "start_actor", lambda spec, **placed: Spawned(spec.name, placed, killed))
    cluster = Cluster("test", ProcessRegistry(Path()))
    kept = [cluster.spawn(ActorSpec(name, object)) for name in ("one", "two")]
    cluster.kill()
    assert sorted(killed) == ["one", "two"]
    assert len(kept) == 2


async def test_whatever_ray_raises_for_a_call_is_an_error_of_agentrl() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answer.set_exception(RuntimeEnvSetupError("no such variable"))
    actor = SimpleNamespace(make=SimpleNamespace(remote=lambda *_: answer))
    with pytest.raises(EngineDiedError, match="engine 0: start failed"):
        await ActorHandle("engine 0", actor, EngineDiedError).make(deadline_s=5.0)


class Unreachable:
    """The actor of a rank whose host is reached again after `count` calls, each of which may have got there."""

    def __init__(self, count: int, *, arrive: bool) -> None:
        self._host = calls._BlockingHost(list, ())
        self._host.make("rank 0")
        self._count, self._arrive = count, arrive
        self.call, self.probe = SimpleNamespace(remote=self._remote), SimpleNamespace(remote=lambda: None)

    def _remote(self, *words: Any) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._count -= 1
        value = self._host.call(*words) if self._arrive or self._count < 0 else None
        if self._count < 0:
            answer.set_result(value)
        else:
            answer.set_exception(ActorUnavailableError("its host is cut off", None))
        return answer

    @property
    def made(self) -> list[int]:
        return list(self._host._object)


@pytest.mark.parametrize("arrive", [True, False])
async def test_a_rank_whose_host_is_cut_off_for_a_while_is_called_once(
    monkeypatch: pytest.MonkeyPatch, arrive: bool
) -> None:
    monkeypatch.setattr(calls, "UNREACHABLE_S", 0.0)
    actor = Unreachable(3, arrive=arrive)
    rank = ActorHandle("rank 0", actor, LearnerDiedError, is_blocking=True)
    await rank.call("append", 1, deadline_s=20.0)
    await rank.call("append", 2, deadline_s=20.0)
    assert actor.made == [1, 2]
    assert await rank.call("index", 2, deadline_s=20.0) == 1


async def test_a_rank_whose_host_stays_cut_off_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "UNREACHABLE_S", 0.0)
    rank = ActorHandle("rank 0", Unreachable(1 << 30, arrive=False), LearnerDiedError, is_blocking=True)
    with pytest.raises(DeadlineError, match="rank 0: append took longer than 0 s"):
        await rank.call("append", 1, deadline_s=0.1)


async def test_an_answer_that_was_dropped_without_a_word_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent shows that the connection is gone: only then does Ray fail the call that waits."""
    monkeypatch.setattr(calls, "PROBE_S", 0.0)
    monkeypatch.setattr(calls, "UNREACHABLE_S", 0.0)
    actor = Unreachable(0, arrive=True)
    dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answers = [lambda: dropped, lambda: actor._remote(*sent)]
    sent: list[Any] = []

    def send(*words: Any) -> asyncio.Future[Any]:
        sent[:] = words
        if len(answers) == 2:
            actor._host.call(*words)
        return answers.pop(0)()

    def probe() -> None:
        if not dropped.done():
            dropped.set_exception(ActorUnavailableError("connection reset", None))

    actor.call, actor.probe = SimpleNamespace(remote=send), SimpleNamespace(remote=probe)
    rank = ActorHandle("rank 0", actor, LearnerDiedError, is_blocking=True)
    await asyncio.wait_for(rank.call("append", 1, deadline_s=20.0), 10.0)
    assert actor.made == [1]


async def test_an_engine_whose_host_cannot_be_reached_is_lost_for_it_can_be_replaced() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answer.set_exception(ActorUnavailableError("its host is cut off", None))
    actor = SimpleNamespace(call=SimpleNamespace(remote=lambda *_: answer))
    with pytest.raises(EngineDiedError, match="engine 0: its host could not be reached during pause"):
        await ActorHandle("engine 0", actor, EngineDiedError).call("pause", deadline_s=5.0)


def test_what_a_lost_call_raised_is_said_when_it_is_sent_again() -> None:
    host = calls._BlockingHost(list, ())
    host.make("rank 0")
    with pytest.raises(ValueError, match="not in list"):
        host.call("driver", 1, "index", 5)
    with pytest.raises(ValueError, match="not in list") as raised:
        host.call("driver", 1, "index", 5)
    assert len(raised.traceback) == 3, "the frames of the call itself are not kept"
    host.call("driver", 2, "append", 5)
    with pytest.raises(AgentRLError, match="the answer to index was lost"):
        host.call("driver", 1, "index", 5)
    assert host.call("another", 1, "index", 5) == 0, "each caller has numbers of its own"


class PickyError(Exception):
    """Cannot be made of its arguments again, as Python's copy does."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{what} in {where}")


class Picky:
    def fail(self) -> None:
        raise PickyError("step 3", "no memory")


def test_an_error_that_cannot_be_copied_is_raised_all_the_same() -> None:
    host = calls._BlockingHost(Picky, ())
    host.make("rank 0")
    with pytest.raises(PickyError):
        host.call("driver", 1, "fail")
    with pytest.raises(AgentRLError, match="PickyError: no memory in step 3"):
        host.call("driver", 1, "fail")

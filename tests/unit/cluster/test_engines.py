"""An engine that fails is replaced, refilled and announced, as often as the run allows, and then the run fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster import engines as engines_module
from agentrl.cluster.engines import Engines
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import Stop
from agentrl.cluster.workers import Fleets, Workers
from agentrl.config.schema import POLICY, EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.engine.scripted import ScriptedEngine
from agentrl.errors import AgentRLError, DeadlineError, EngineRefusedError, LearnerDiedError, RunError, WeightsError
from agentrl.records import restarts as restarts_module
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts, read_restarts
from agentrl.rollout.slots import Slots


class Process:
    """An actor whose object lives in this process."""

    key = where = host = ""

    def __init__(self, spec: ActorSpec) -> None:
        self.spec, self.name = spec, spec.name
        self.object: Any = None
        self.is_killed = False

    async def make(self, *args: Any, deadline_s: float) -> int:
        await asyncio.sleep(0)
        self.object, self.made_with = self.spec.factory(*self.spec.args), args
        self.host = f"the machine of {self.name}"
        return 1

    async def devices(self, deadline_s: float) -> list[str]:
        return []

    async def address(self, deadline_s: float) -> tuple[str, int]:
        return "10.0.0.1", 1

    async def identify(self, pids: Sequence[int], deadline_s: float) -> list[int]:
        return list(pids)

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        if self.object is None:
            raise AgentRLError(f"{self.name}: {method} raised AttributeError")
        return [1] if method == "pids" else await getattr(self.object, method)(*args)

    def kill(self) -> None:
        self.is_killed = True
        if isinstance(self.object, ScriptedEngine):
            self.object.kill()


class Processes:
    """A cluster that starts such actors."""

    def __init__(self) -> None:
        self.spawned: list[Process] = []

    def spawn(self, spec: ActorSpec) -> Process:
        self.spawned.append(Process(spec))
        return self.spawned[-1]

    def register(self, process: object) -> None: ...


class Run:
    """Engines, a rollout worker that hears of them, and the records of the run."""

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        restarts: int = 5,
        *,
        shares_gpus: bool = False,
        processes: Processes | None = None,
        start_timeout_s: float = 600.0,
    ) -> None:
        self.processes, self.stop, self.folder = processes or Processes(), Stop(), RunFolder(folder)
        self.heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.refilled: list[Engine] = []
        self.faults: list[Exception] = []
        self.deaf: list[Exception] = []
        self.notes: list[str] = []
        self.records = Restarts(self.folder, restarts, self.notes.append)
        cluster = cast(Cluster, self.processes)
        self.workers = Workers(cluster, self.worker_spec, 1, self.records, Slots({}))
        self.engines = Engines(
            cluster,
            lambda engine_id: ActorSpec(f"engine {engine_id}", ScriptedEngine),
            EngineSection(count=count, restarts=restarts, start_timeout_s=start_timeout_s),
            self.workers,
            self.records,
            self.stop,
            devices=self.devices if shares_gpus else None,
        )

    async def devices(self, engine_id: int) -> list[str]:
        return [str(engine_id)]

    def worker_spec(self, engines: Fleets, worker_id: int) -> ActorSpec:
        self.sampled_from = list(engines[POLICY])
        return ActorSpec("worker", lambda: self)

    async def start(self) -> None:
        await asyncio.gather(self.engines.start(), self.workers.start({POLICY: self.engines.current}))
        self.engines.watch(self.refill)

    async def refill(self, engine: Engine) -> None:
        self.refilled.append(engine)
        if self.faults:
            raise self.faults.pop(0)

    async def task_count(self, split: str) -> None:
        """As of a rollout worker; so are the next two."""

    async def engine_lost(self, engine_id: int, why: str, model: str) -> None:
        assert model == POLICY
        if self.deaf:
            raise self.deaf.pop(0)
        self.heard.put_nowait((f"lost: {why}", engine_id))

    async def engine_restarted(self, engine_id: int, engine: RemoteEngine, model: str) -> None:
        assert model == POLICY
        assert self.engines.serving()[engine_id] is engine
        self.heard.put_nowait(("restarted", engine_id))

    def replace(self, engine_id: int, why: str) -> RemoteEngine:
        engine = self.engines.current[engine_id]
        self.engines.replace({engine_id: engine}, why)
        return engine

    async def events(self, count: int) -> list[tuple[str, int]]:
        return [await asyncio.wait_for(self.heard.get(), 5.0) for _ in range(count)]

    async def end(self) -> None:
        """Wait for what stops the run, and raise it."""
        await asyncio.wait_for(self.stop.cut(asyncio.Event().wait()), 5.0)

    async def close(self) -> None:
        await self.engines.close()
        self.records.close()


def gate_of_starts(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Hold engines that start from now on until the event is set."""
    gate, start = asyncio.Event(), ScriptedEngine.start

    async def held(engine: ScriptedEngine, deadline_s: float) -> None:
        await gate.wait()
        await start(engine, deadline_s)

    monkeypatch.setattr(ScriptedEngine, "start", held)
    return gate


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    run = Run(tmp_path, count=2, restarts=2)
    await run.start()
    yield run
    await run.close()


async def test_an_engine_that_failed_is_replaced_refilled_and_announced(run: Run) -> None:
    old = run.replace(1, "the canary")
    assert list(run.engines.serving()) == [0]
    assert run.engines.current[1] is old, "workers keep to the lost one until the new one serves"
    run.engines.replace({1: old}, "again")
    assert await run.events(2) == [("lost: the canary", 1), ("restarted", 1)]
    [new] = run.refilled
    assert [run.engines.serving()[1], run.engines.current[1]] == [new, new]
    run.engines.replace({1: old}, "a late fault of the old one")
    assert list(run.engines.serving()) == [0, 1]
    assert run.heard.empty()
    assert old.actor.object._dead  # type: ignore[attr-defined]


async def test_an_engine_that_cannot_be_refilled_is_replaced_again(run: Run) -> None:
    run.faults = [WeightsError("tensor 'a' did not arrive")]
    run.replace(0, "it died")
    assert await run.events(3) == [("lost: it died", 0), ("lost: tensor 'a' did not arrive", 0), ("restarted", 0)]
    first, second = run.refilled
    assert run.engines.serving()[0] is second
    assert first.actor.object._dead  # type: ignore[attr-defined]


async def test_more_deaths_than_restarts_fail_the_run(run: Run) -> None:
    run.faults = [EngineRefusedError("no"), EngineRefusedError("never")]
    run.replace(0, "it died")
    with pytest.raises(RunError, match=r"^engines died 3 times \(engine.restarts = 2\); the last, engine 0: never$"):
        await run.end()
    assert list(run.engines.serving()) == [1]


async def test_a_learner_that_fails_in_a_refill_ends_the_run_and_costs_no_engine(run: Run) -> None:
    run.faults = [LearnerDiedError("learner rank 0: its process died")]
    run.replace(0, "it died")
    with pytest.raises(LearnerDiedError, match="learner rank 0"):
        await run.end()
    assert len(read_restarts(run.folder)) == 1, "that of the engine that died"


async def test_a_fault_that_nobody_foresaw_is_a_failed_attempt(run: Run) -> None:
    run.faults = [TypeError("a bug")]
    run.replace(0, "it died")
    assert await run.events(3) == [("lost: it died", 0), ("lost: TypeError: a bug", 0), ("restarted", 0)]


async def test_a_fault_outside_a_restart_fails_the_run_with_an_error_of_agentrl(run: Run) -> None:
    run.deaf = [TypeError("a bug")]
    run.replace(0, "it died")
    with pytest.raises(RunError, match=r"^TypeError: a bug$"):
        await run.end()


async def test_a_worker_that_fails_at_the_loss_of_an_engine_is_replaced_and_the_run_goes_on(run: Run) -> None:
    run.deaf = [AgentRLError("worker: engine_lost raised KeyError: 0")]
    run.replace(0, "it died")
    assert await run.events(1) == [("restarted", 0)]
    assert not run.stop.is_called
    assert [process.is_killed for process in run.processes.spawned if process.name == "worker"] == [True, False]
    assert [restart.process for restart in read_restarts(run.folder)] == ["engine 0", "worker"]


async def test_a_worker_that_is_replaced_samples_from_the_present_engines(run: Run) -> None:
    run.replace(0, "it died")
    await run.events(2)
    run.deaf = [AgentRLError("worker: engine_lost raised KeyError: 0")]
    old = run.replace(1, "it died")
    await run.events(1)
    assert run.sampled_from == [run.engines.current[0], old]


async def test_an_engine_that_is_being_replaced_is_not_put_to_sleep(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[ScriptedEngine] = []
    sleep = ScriptedEngine.sleep

    async def recorded(engine: ScriptedEngine, deadline_s: float) -> None:
        slept.append(engine)
        await sleep(engine, deadline_s)

    monkeypatch.setattr(ScriptedEngine, "sleep", recorded)
    gate_of_starts(monkeypatch)
    run.replace(1, "it died").actor.kill()
    await run.engines.sleep(1.0)
    assert slept == [run.engines.current[0].actor.object]  # type: ignore[attr-defined]


async def test_engines_that_one_cause_has_lost_are_one_incident(run: Run) -> None:
    run.engines.replace(dict(enumerate(run.engines.current)), "the collective broke")
    assert sorted(await run.events(4)) == sorted(
        [("lost: the collective broke", 0), ("lost: the collective broke", 1), ("restarted", 0), ("restarted", 1)]
    )
    assert [restart.process for restart in read_restarts(run.folder)] == ["engine 0, engine 1"]
    for _ in range(1):
        run.replace(0, "it died")
        await run.events(2)
    with pytest.raises(RunError, match=r"^engines died 3 times"):
        run.replace(1, "it died")


def on_hosts(run: Run, *names: str) -> None:
    """Let the engines be on these machines."""
    for engine, name in zip(run.engines.current, names, strict=True):
        engine.actor.host = name  # type: ignore[attr-defined]


async def test_a_lost_machine_is_one_incident_however_many_engines_it_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines_module, "HEARTBEAT_S", 0.01)
    run = Run(tmp_path, count=8, restarts=1)
    await run.start()
    on_hosts(run, *["a"] * 7, "b")
    for process in run.processes.spawned[:7]:
        process.kill()
    assert Counter(what[:4] for what, _ in await run.events(14)) == {"lost": 7, "rest": 7}
    assert len(read_restarts(run.folder)) == 7
    run.processes.spawned[7].kill()
    with pytest.raises(RunError, match=r"^engines died 2 times"):
        await run.end()
    await run.close()


async def test_an_engine_that_dies_again_and_one_after_a_while_are_incidents_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = 0.0
    monkeypatch.setattr(restarts_module.time, "monotonic", lambda: now)
    records = Restarts(RunFolder(tmp_path), 3, lambda _: None)
    records.lost("engines", {"engine 0": "a"}, "it died")
    now = 59.0
    records.lost("engines", {"engine 1": "a", "engine 2": "a"}, "they died")
    records.lost("workers", {"worker 0": "a"}, "it died")
    records.lost("engines", {"engine 0": "a"}, "it died again")
    now = 120.0
    records.lost("engines", {"engine 1": "a"}, "it died much later")
    with pytest.raises(RunError, match=r"^engines died 4 times"):
        records.lost("engines", {"engine 3": ""}, "its replacement died")
    records.close()


class Full(Processes):
    """A cluster that has room for no further process."""

    def spawn(self, spec: ActorSpec) -> Process:
        process = super().spawn(spec)
        if self.is_full:
            process.address = self.never  # type: ignore[method-assign]
        return process

    is_full = False
    times_out: asyncio.Event | None = None
    error: AgentRLError = DeadlineError("start took longer than 600 s")

    async def never(self, deadline_s: float) -> tuple[str, int]:
        await (self.times_out.wait() if self.times_out else asyncio.sleep(0))
        raise self.error


async def test_an_engine_without_a_machine_waits_while_others_serve(tmp_path: Path) -> None:
    cluster = Full()
    run = Run(tmp_path, count=2, restarts=2, processes=cluster)
    await run.start()
    cluster.is_full = True
    run.replace(0, "its machine died")
    assert set(await run.events(10)) == {("lost: its machine died", 0)}
    why = "no machine started engine 0 within 600 s: none has room, or its process starts too slowly"
    assert set(run.notes[1:]) == {f"engine 0 still waits to be replaced: {why}"}
    assert len(read_restarts(run.folder)) == 1
    cluster.is_full = False
    while (await run.events(1)) != [("restarted", 0)]:
        pass
    assert list(run.engines.serving()) == [0, 1]
    cluster.is_full = True
    run.engines.replace(dict(enumerate(run.engines.current)), "all died")
    with pytest.raises(RunError, match=r"^engines died 3 times .*no machine started engine"):
        await run.end()
    await run.close()


@pytest.mark.parametrize("error", [Full.error, AgentRLError("its process died during start")])
async def test_engines_that_wait_for_a_machine_in_vain_or_are_placed_on_one_that_is_being_lost_are_one_incident(
    tmp_path: Path, error: AgentRLError
) -> None:
    cluster = Full()
    cluster.error = error
    run = Run(tmp_path, count=8, restarts=3, processes=cluster)
    await run.start()
    cluster.is_full, cluster.times_out = True, asyncio.Event()
    run.engines.replace(dict(enumerate(run.engines.current)), "their machine is gone")
    assert Counter(what[:4] for what, _ in await run.events(8)) == {"lost": 8}
    first, cluster.times_out = cluster.times_out, asyncio.Event()
    first.set()
    assert Counter(what[:4] for what, _ in await run.events(8)) == {"lost": 8}
    cluster.is_full = False
    cluster.times_out.set()
    assert Counter(what[:4] for what, _ in await run.events(16)) == {"lost": 8, "rest": 8}
    await run.close()


# --- engines and learner on the same GPUs -------------------------------------------------------------------------


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Run]:
    run = Run(tmp_path, count=2, shares_gpus=True)
    await run.start()
    yield run
    await run.close()


def asleep(run: Run) -> list[bool]:
    return [engine.actor.object._asleep for engine in run.engines.current]  # type: ignore[attr-defined]


async def test_engines_sleep_once_they_have_started_on_the_gpus_of_the_ranks(shared: Run) -> None:
    assert asleep(shared) == [True, True]
    assert [process.made_with for process in shared.processes.spawned if "engine" in process.name] == [
        (["0"],),
        (["1"],),
    ]
    await shared.engines.wake(1.0)
    assert asleep(shared) == [False, False]
    await shared.engines.sleep(1.0)
    assert asleep(shared) == [True, True]


@pytest.mark.parametrize("call", ["sleep", "wake"])
async def test_an_engine_that_dies_when_the_turn_changes_is_replaced_and_the_run_goes_on(
    shared: Run, call: str
) -> None:
    if call == "sleep":
        await shared.engines.wake(1.0)
    shared.processes.spawned[0].kill()
    await getattr(shared.engines, call)(1.0)
    if call == "sleep":
        await shared.engines.wake(1.0)
    assert [what.partition(":")[0] for what, _ in await shared.events(2)] == ["lost", "restarted"]
    assert not shared.stop.is_called


async def assert_turn_waits(run: Run, ends: asyncio.Event) -> None:
    """The learner's turn does not begin before an engine ends, as it does once the event is set."""
    turn = asyncio.create_task(run.engines.sleep(1.0))
    for _ in range(50):
        await asyncio.sleep(0)
    began_early = turn.done()
    ends.set()
    await asyncio.wait_for(turn, 5.0)
    assert not began_early


async def test_the_learners_turn_begins_when_an_engine_that_cannot_sleep_has_ended(
    shared: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging engine holds its share of the GPU until it is killed."""
    await shared.engines.wake(1.0)
    lost, close, ends = shared.engines.current[0].actor, ScriptedEngine.close, asyncio.Event()

    async def hangs(engine: ScriptedEngine, deadline_s: float) -> None:
        raise DeadlineError("sleep took longer than 1 s")

    async def late(engine: ScriptedEngine) -> None:
        await ends.wait()
        await close(engine)

    monkeypatch.setattr(lost.object, "sleep", partial(hangs, lost.object))  # type: ignore[attr-defined]
    monkeypatch.setattr(lost.object, "close", partial(late, lost.object))  # type: ignore[attr-defined]
    await assert_turn_waits(shared, ends)
    assert lost.is_killed  # type: ignore[attr-defined]


async def test_the_learners_turn_begins_when_a_new_engine_that_was_not_refilled_has_ended(shared: Run) -> None:
    await shared.engines.wake(1.0)
    new, ends, closing = list[Engine](), asyncio.Event(), asyncio.Event()

    async def refill(engine: RemoteEngine) -> None:
        if new:
            await asyncio.Event().wait()
        new.append(engine)
        await engine.wake(1.0)
        process, close = engine.actor.object, engine.actor.object.close  # type: ignore[attr-defined]

        async def late() -> None:
            closing.set()
            await ends.wait()
            await close()

        process.close = late
        raise WeightsError("it did not arrive whole")

    shared.engines._refill = cast(Any, refill)
    shared.replace(0, "it died")
    await asyncio.wait_for(closing.wait(), 5.0)
    await assert_turn_waits(shared, ends)


async def test_no_engine_starts_while_it_is_the_learners_turn(shared: Run) -> None:
    await shared.engines.wake(1.0)
    await shared.engines.sleep(1.0)
    count = len(shared.processes.spawned)
    shared.replace(0, "it died")
    await shared.events(1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert [process.object for process in shared.processes.spawned[count:]] == [None], "spawned, but it holds no GPU"
    await shared.engines.wake(1.0)
    assert await shared.events(1) == [("restarted", 0)]
    assert asleep(shared) == [True, False], "the publisher wakes a new engine for its weights"


async def test_the_learner_waits_for_an_engine_that_is_starting(shared: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    await shared.engines.wake(1.0)
    gate = gate_of_starts(monkeypatch)
    shared.replace(0, "it died")
    await shared.events(1)
    turn = asyncio.create_task(shared.engines.sleep(1.0))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not turn.done()
    gate.set()
    await asyncio.wait_for(turn, 5.0)
    assert asleep(shared)[1]


async def test_engines_that_are_replaced_start_side_by_side(shared: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the start of the run; the learner waits as long as one of them takes, not for one after the other."""
    await shared.engines.wake(1.0)
    gate, waiting, start = asyncio.Event(), list[ScriptedEngine](), ScriptedEngine.start

    async def held(engine: ScriptedEngine, deadline_s: float) -> None:
        waiting.append(engine)
        await gate.wait()
        await start(engine, deadline_s)

    monkeypatch.setattr(ScriptedEngine, "start", held)
    shared.engines.replace(dict(enumerate(shared.engines.current)), "the send broke")
    await shared.events(2)
    turn = asyncio.create_task(shared.engines.sleep(1.0))
    for _ in range(50):
        await asyncio.sleep(0)
    assert (len(waiting), turn.done()) == (2, False)
    gate.set()
    await asyncio.wait_for(turn, 5.0)
    assert asleep(shared) == [True, True]


async def test_a_dead_engine_is_found_by_its_heartbeat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines_module, "HEARTBEAT_S", 0.01)
    run = Run(tmp_path)
    await run.start()
    run.processes.spawned[0].kill()
    assert [what[:8] for what, _ in await run.events(2)] == ["lost: th", "restarte"]
    await run.close()
    assert all(p.object._dead for p in run.processes.spawned if p.name == "engine 0")

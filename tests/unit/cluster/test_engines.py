"""An engine that fails is replaced, refilled and announced, as often as the run allows, and then the run fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from agentrl.cluster import engines as engines_module
from agentrl.cluster.engines import Engines
from agentrl.cluster.ray import ActorSpec, Cluster
from agentrl.config.schema import EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.engine.scripted import ScriptedEngine
from agentrl.errors import EngineRefusedError, RunError, WeightsError


class Process:
    """An actor whose engine lives in this process."""

    key = ""

    def __init__(self, spec: ActorSpec) -> None:
        self.name = spec.name
        self.engine: Any = None

    async def make(self, *args: Any, deadline_s: float) -> int:
        await asyncio.sleep(0)
        self.engine = ScriptedEngine()
        return 1

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        return [1] if method == "pids" else await getattr(self.engine, method)(*args)

    def kill(self) -> None:
        if self.engine is not None:
            self.engine.kill()


class Processes:
    """A cluster that starts such actors."""

    def __init__(self) -> None:
        self.spawned: list[Process] = []

    def spawn(self, spec: ActorSpec) -> Process:
        self.spawned.append(Process(spec))
        return self.spawned[-1]


class Run:
    """Engines, and what the rest of the run learns of them."""

    def __init__(self, count: int = 1, restarts: int = 5) -> None:
        self.processes = Processes()
        self.heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self.refilled: list[Engine] = []
        self.faults: list[Exception] = []
        self.engines = Engines(
            cast(Cluster, self.processes),
            lambda engine_id: ActorSpec(f"engine {engine_id}", ScriptedEngine),
            EngineSection(count=count, restarts=restarts),
            lambda name, pid: None,
        )

    async def refill(self, engine: Engine) -> None:
        self.refilled.append(engine)
        if self.faults:
            raise self.faults.pop(0)

    async def lost(self, engine_id: int, why: str) -> None:
        self.heard.put_nowait((f"lost: {why}", engine_id))

    async def restarted(self, engine_id: int, engine: RemoteEngine) -> None:
        assert self.engines.serving()[engine_id] is engine
        self.heard.put_nowait(("restarted", engine_id))

    def failed(self, error: BaseException) -> None:
        self.failures.put_nowait(error)

    def replace(self, engine_id: int, why: str) -> RemoteEngine:
        engine = self.engines.current[engine_id]
        self.engines.replace(engine_id, engine, why)
        return engine

    async def events(self, count: int) -> list[tuple[str, int]]:
        return [await asyncio.wait_for(self.heard.get(), 5.0) for _ in range(count)]


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    run = Run(count=2, restarts=2)
    await run.engines.start()
    run.engines.watch(run.refill, run)
    yield run
    await run.engines.close()


async def test_an_engine_that_failed_is_replaced_refilled_and_announced(run: Run) -> None:
    old = run.replace(1, "the canary")
    assert list(run.engines.serving()) == [0]
    assert run.engines.current[1] is old, "workers keep to the lost one until the new one serves"
    run.engines.replace(1, old, "again")
    assert await run.events(2) == [("lost: the canary", 1), ("restarted", 1)]
    [new] = run.refilled
    assert [run.engines.serving()[1], run.engines.current[1]] == [new, new]
    run.engines.replace(1, old, "a late fault of the old one")
    assert list(run.engines.serving()) == [0, 1]
    assert run.heard.empty()
    assert old.actor.engine._dead  # type: ignore[attr-defined]


async def test_an_engine_that_cannot_be_refilled_is_replaced_again(run: Run) -> None:
    run.faults = [WeightsError("tensor 'a' did not arrive")]
    run.replace(0, "it died")
    assert await run.events(3) == [("lost: it died", 0), ("lost: tensor 'a' did not arrive", 0), ("restarted", 0)]
    first, second = run.refilled
    assert run.engines.serving()[0] is second
    assert first.actor.engine._dead  # type: ignore[attr-defined]


async def test_more_deaths_than_restarts_fail_the_run(run: Run) -> None:
    run.faults = [EngineRefusedError("no"), EngineRefusedError("never")]
    run.replace(0, "it died")
    error = await asyncio.wait_for(run.failures.get(), 5.0)
    assert isinstance(error, RunError)
    assert str(error) == "engines died 3 times (engine.restarts = 2); the last: never"
    assert list(run.engines.serving()) == [1]


async def test_a_fault_that_nobody_foresaw_is_a_failed_attempt(run: Run) -> None:
    run.faults = [TypeError("a bug")]
    run.replace(0, "it died")
    assert await run.events(3) == [("lost: it died", 0), ("lost: TypeError: a bug", 0), ("restarted", 0)]


async def test_a_fault_outside_a_restart_fails_the_run_with_an_error_of_agentrl(run: Run) -> None:
    async def lost(engine_id: int, why: str) -> None:
        raise TypeError("a bug")

    run.lost = lost  # type: ignore[method-assign]
    run.replace(0, "it died")
    error = await asyncio.wait_for(run.failures.get(), 5.0)
    assert isinstance(error, RunError)
    assert str(error) == "TypeError: a bug"


async def test_an_engine_that_fails_before_the_run_began_is_an_error() -> None:
    run = Run()
    with pytest.raises(RunError, match="engine 0 failed before the run began: it died"):
        run.replace(0, "it died")
    assert list(run.engines.serving()) == [0]


async def test_a_dead_engine_is_found_by_its_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_module, "HEARTBEAT_S", 0.01)
    run = Run()
    await run.engines.start()
    run.engines.watch(run.refill, run)
    run.processes.spawned[0].kill()
    assert [what[:8] for what, _ in await run.events(2)] == ["lost: th", "restarte"]
    await run.engines.close()
    assert all(process.engine._dead for process in run.processes.spawned)

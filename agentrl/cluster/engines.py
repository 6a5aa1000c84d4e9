"""The engines of a run: started together, and replaced when they die or do not hold the published weights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from agentrl.cluster.ray import ActorSpec, Cluster
from agentrl.config.schema import EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError, RunError, acatch

HEARTBEAT_S = 2.0
ANSWER_S = 120.0
END_S = 6.0


class Events(Protocol):
    """The rest of the run, as far as it must know what happens to engines."""

    async def lost(self, engine_id: int, why: str) -> None:
        """Called when an engine is gone and will be replaced."""

    async def restarted(self, engine_id: int, engine: RemoteEngine) -> None:
        """Called when `engine` replaces a lost one and serves the present weights."""

    def failed(self, error: BaseException) -> None:
        """Called when an engine cannot be replaced: the run cannot continue."""


class Engines:
    """All engines of a run: a `Fleet` to the publisher.

    `spec_of(engine_id)` specifies an engine and `register` records its processes. An engine that dies, does not answer
    or does not hold the published weights is replaced, at most `engine.restarts` times in a run.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec_of: Callable[[int], ActorSpec],
        section: EngineSection,
        register: Callable[[str, int], None],
    ) -> None:
        self._cluster, self._spec_of, self._section, self._register = cluster, spec_of, section, register
        self._engines = [self._spawned(engine_id) for engine_id in range(section.count)]
        self._down: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._deaths = count(1)
        self._refill: Callable[[Engine], Awaitable[None]] | None = None
        self._events: Events | None = None

    @property
    def current(self) -> list[RemoteEngine]:
        """The engines that serve weights; in the place of one that is being replaced, the lost one."""
        return list(self._engines)

    def serving(self) -> dict[int, RemoteEngine]:
        """Return the engines that are up, by engine id."""
        return {i: engine for i, engine in enumerate(self._engines) if i not in self._down}

    async def start(self) -> None:
        """Wait until every engine has loaded the model."""
        await asyncio.gather(*(self._start(engine) for engine in self._engines))

    def watch(self, refill: Callable[[Engine], Awaitable[None]], events: Events) -> None:
        """Replace engines from now on; `refill` publishes the present weights to one of them."""
        self._refill, self._events = refill, events
        for engine_id in range(len(self._engines)):
            self._run(self._heartbeats(engine_id))

    def replace(self, engine_id: int, engine: Engine, why: str) -> None:
        """Replace `engine` in the background, unless that was done or is under way. Raises RunError before `watch`."""
        if self._events is None:
            raise RunError(f"engine {engine_id} failed before the run began: {why}")
        if self._is_closing or engine_id in self._down or self._engines[engine_id] is not engine:
            return
        self._down.add(engine_id)
        self._run(self._replace(engine_id, why))

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPUs for the learner that shares them."""
        await asyncio.gather(*(engine.sleep(deadline_s) for engine in self._engines))

    async def wake(self, deadline_s: float) -> None:
        """Take the GPUs back; weights must be published before anything is sampled."""
        await asyncio.gather(*(engine.wake(deadline_s) for engine in self._engines))

    async def close(self) -> None:
        """End every engine and its processes. Idempotent."""
        self._is_closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._end(engine) for engine in self._engines))

    # --- inside ---------------------------------------------------------------------------------------------

    def _spawned(self, engine_id: int) -> RemoteEngine:
        return RemoteEngine(self._cluster.spawn(self._spec_of(engine_id)))

    async def _start(self, engine: RemoteEngine) -> None:
        await engine.actor.make(deadline_s=self._section.start_timeout_s)
        await engine.start(self._section.start_timeout_s)
        for pid in await engine.pids():
            self._register(engine.actor.name, pid)

    async def _heartbeats(self, engine_id: int) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if engine_id in self._down:
                continue
            engine = self._engines[engine_id]
            try:
                await engine.check(ANSWER_S)
            except AgentRLError as error:
                self.replace(engine_id, engine, str(error))

    async def _replace(self, engine_id: int, why: str) -> None:
        assert self._events is not None, "`replace` has checked it"
        for death in self._deaths:
            await self._events.lost(engine_id, why)
            if death > self._section.restarts:
                raise RunError(
                    f"engines died {death} times (engine.restarts = {self._section.restarts}); the last: {why}"
                )
            error = (await acatch(self._restart(engine_id))).error
            if error is None:
                break
            if isinstance(error, RunError):
                raise error
            why = _reason(error)
        await self._events.restarted(engine_id, self._engines[engine_id])

    async def _restart(self, engine_id: int) -> None:
        assert self._refill is not None, "`replace` has checked it"
        await self._end(self._engines[engine_id])
        engine = self._spawned(engine_id)
        try:
            await self._start(engine)
            await self._refill(engine)
        except BaseException:
            await self._end(engine)
            raise
        # Nothing is awaited between the refill and here: no publication can pass this engine by.
        self._engines[engine_id] = engine
        self._down.discard(engine_id)

    @staticmethod
    async def _end(engine: RemoteEngine) -> None:
        with suppress(AgentRLError):
            await engine.close(END_S)
        engine.actor.kill()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._events is not None:
            self._events.failed(error if isinstance(error, AgentRLError) else RunError(_reason(error)))


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"

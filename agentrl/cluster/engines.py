"""The engines of a run: started together, and replaced when they die or do not hold the published weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import Stop, as_run_error
from agentrl.cluster.workers import Workers
from agentrl.config.schema import POLICY, EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError, RunError, acatch
from agentrl.records.restarts import Restarts
from agentrl.weights.publisher import Refill

HEARTBEAT_S = 2.0
ANSWER_S = 120.0
END_S = 6.0


class Engines:
    """All engines of one model: a `Fleet` to the publisher.

    `spec_of(engine_id)` specifies an engine, and the workers know all of them by `model`. An engine that dies, does not
    answer or does not hold the published weights is replaced, and the workers send its requests elsewhere. More than
    `engine.restarts` deaths stop the run.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec_of: Callable[[int], ActorSpec],
        section: EngineSection,
        workers: Workers,
        restarts: Restarts,
        stop: Stop,
        model: str = POLICY,
    ) -> None:
        self._cluster, self._spec_of, self._section = cluster, spec_of, section
        self._workers, self._restarts, self._stop, self.model = workers, restarts, stop, model
        self._engines = [self._spawned(engine_id) for engine_id in range(section.count)]
        self._down: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def current(self) -> list[RemoteEngine]:
        """All engines by engine id; an engine that is being replaced is still the lost one."""
        return list(self._engines)

    def serving(self) -> dict[int, RemoteEngine]:
        """Return the engines that are up, by engine id."""
        return {i: engine for i, engine in enumerate(self._engines) if i not in self._down}

    async def start(self) -> None:
        """Wait until every engine has loaded the model."""
        await asyncio.gather(*(self._start(engine) for engine in self._engines))

    def watch(self, refill: Refill) -> None:
        """Replace engines that die, from now on; `refill` publishes the present weights to one of them."""
        for engine_id in range(len(self._engines)):
            self._run(self._heartbeats(engine_id, refill))

    def replace(self, engine_id: int, engine: Engine, why: str, refill: Refill) -> None:
        """Replace `engine` in the background, unless that was done or is under way."""
        if self._is_closing or engine_id in self._down or self._engines[engine_id] is not engine:
            return
        self._down.add(engine_id)
        self._run(self._replace(engine_id, why, refill))

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPUs for the learner that shares them."""
        await asyncio.gather(*(engine.sleep(deadline_s) for engine in self.serving().values()))

    async def wake(self, deadline_s: float) -> None:
        """Take the GPUs back; weights must be published before anything is sampled."""
        await asyncio.gather(*(engine.wake(deadline_s) for engine in self.serving().values()))

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
        actor = cast(ActorHandle, engine.actor)
        await actor.make(deadline_s=self._section.start_timeout_s)
        await engine.start(self._section.start_timeout_s)
        for process in await actor.identify(await engine.pids(), END_S):
            self._cluster.register(process)

    async def _heartbeats(self, engine_id: int, refill: Refill) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if engine_id in self._down:
                continue
            engine = self._engines[engine_id]
            try:
                await engine.check(ANSWER_S)
            except AgentRLError as error:
                self.replace(engine_id, engine, str(error), refill)

    async def _replace(self, engine_id: int, why: str, refill: Refill) -> None:
        while True:
            name = self._engines[engine_id].actor.name
            self._restarts.lost("engines", name, why)
            self._run(self._workers.engine_lost(engine_id, why, self.model))
            error = (await acatch(self._restart(engine_id, refill))).error
            if error is None:
                break
            if isinstance(error, RunError):
                raise error
            why = str(as_run_error(error))
        self._restarts.back(name)
        self._run(self._workers.engine_restarted(engine_id, self._engines[engine_id], self.model))

    async def _restart(self, engine_id: int, refill: Refill) -> None:
        await self._end(self._engines[engine_id])
        engine = self._spawned(engine_id)
        try:
            await self._start(engine)
            await refill(engine)
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
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._stop.if_failed)

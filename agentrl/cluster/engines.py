"""The engines of a run: started together, and replaced when they die or do not hold the published weights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, cast

from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import Stop, as_run_error, together
from agentrl.cluster.turns import Turns
from agentrl.cluster.workers import Workers
from agentrl.config.schema import POLICY, EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError, DeadlineError, LearnerError, RunError, acatch
from agentrl.records.restarts import Restarts
from agentrl.weights.publisher import Refill

HEARTBEAT_S = 2.0
ANSWER_S = 120.0
END_S = 6.0


class NoRoomError(AgentRLError):
    """The process of an engine was started on no machine in time."""


class Engines:
    """All engines of one model: a `Fleet` to the publisher.

    `spec_of(engine_id)` specifies an engine, and the workers know all of them by `model`. An engine that dies, does not
    answer or does not hold the published weights is replaced, and the workers send its requests elsewhere. If no
    machine has room for it, it waits while others serve. More than `engine.restarts` incidents stop the run; engines
    that one cause has lost, such as the loss of their machine, are one incident.

    `devices(engine_id)` are the GPUs that an engine and learner ranks use by turns. Such engines sleep once they have
    started, and none starts while it is the learner's turn.
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
        devices: Callable[[int], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._cluster, self._spec_of, self._section = cluster, spec_of, section
        self._workers, self._restarts, self._stop, self.model = workers, restarts, stop, model
        self._devices = devices
        self._turns = Turns()
        self._refill: Refill | None = None
        self._engines = [self._spawned(engine_id) for engine_id in range(section.count)]
        self._down: set[int] = set()
        self._ending: set[RemoteEngine] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def current(self) -> list[RemoteEngine]:
        """All engines by engine id; an engine that is being replaced is still the lost one."""
        return list(self._engines)

    @property
    def shares_gpus(self) -> bool:
        """Whether engines and learner take turns on GPUs."""
        return self._devices is not None

    def serving(self) -> dict[int, RemoteEngine]:
        """Return the engines that are up, by engine id."""
        return {i: engine for i, engine in enumerate(self._engines) if i not in self._down}

    async def start(self) -> None:
        """Wait until every engine has loaded the model."""
        await together(self._start(engine_id, engine) for engine_id, engine in enumerate(self._engines))

    def watch(self, refill: Refill) -> None:
        """Replace engines that die, from now on; `refill` publishes the present weights to one of them."""
        self._refill = refill
        for engine_id in range(len(self._engines)):
            self._run(self._heartbeats(engine_id))

    def replace(self, lost: Mapping[int, Engine], why: str) -> None:
        """Replace engines in the background, unless that was done or is under way.

        Raises RunError after too many incidents.
        """
        new = [n for n, engine in lost.items() if n not in self._down and self._engines[n] is engine]
        if self._is_closing or not new:
            return
        self._down.update(new)
        actors = [cast(ActorHandle, self._engines[n].actor) for n in new]
        self._restarts.lost("engines", {actor.name: actor.host for actor in actors}, why)
        for engine_id in new:
            self._run(self._replace(engine_id, why))

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPUs for the learner that shares them, once no engine is starting and all that were lost have ended.

        One that fails is replaced.
        """
        try:
            await self._turns.begin(self._section.start_timeout_s)
        except TimeoutError:
            raise RunError("an engine that is being replaced does not start; the learner waits for its GPU") from None
        await self._each("sleep", deadline_s)
        lost = {self._engines[engine_id] for engine_id in self._down} | self._ending
        await asyncio.gather(*map(self._end, lost))

    async def wake(self, deadline_s: float) -> None:
        """Take memory for weights back; weights must be published before anything is sampled."""
        await self._turns.end()
        await self._each("wake", deadline_s)

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

    async def _start(self, engine_id: int, engine: RemoteEngine) -> None:
        actor, deadline_s = cast(ActorHandle, engine.actor), self._section.start_timeout_s
        try:
            engine.host, _ = await actor.address(deadline_s)
        except DeadlineError:
            why = "none has room, or its process starts too slowly"
            raise NoRoomError(f"no machine started {actor.name} within {deadline_s:.0f} s: {why}") from None
        devices = await self._devices(engine_id) if self._devices else ()
        await actor.make(*([list(devices)] if devices else []), deadline_s=deadline_s)
        await engine.start(deadline_s)
        for process in await actor.identify(await engine.pids(), END_S):
            self._cluster.register(process)
        if self._devices:
            await engine.sleep(deadline_s)

    async def _each(self, method: str, deadline_s: float) -> None:
        """Call a method of every engine; those that fail are replaced."""
        engines = self.serving()
        calls = (getattr(engine, method)(deadline_s) for engine in engines.values())
        results = await asyncio.gather(*calls, return_exceptions=True)
        for (engine_id, engine), result in zip(engines.items(), results, strict=True):
            if isinstance(result, AgentRLError):
                self.replace({engine_id: engine}, str(result))
            elif isinstance(result, BaseException):
                raise result

    async def _heartbeats(self, engine_id: int) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if engine_id in self._down:
                continue
            engine = self._engines[engine_id]
            try:
                await engine.check(ANSWER_S)
            except AgentRLError as error:
                self.replace({engine_id: engine}, str(error))

    async def _replace(self, engine_id: int, why: str) -> None:
        name = self._engines[engine_id].actor.name
        while True:
            self._run(self._workers.engine_lost(engine_id, why, self.model))
            error = (await acatch(self._restart(engine_id))).error
            if error is None:
                break
            if isinstance(error, RunError | LearnerError):  # a learner that fails in the refill loses every engine
                raise error
            if isinstance(error, NoRoomError) and self.serving():
                self._restarts.waits(name, str(error))
                continue
            why = str(as_run_error(error))
            self._restarts.lost("engines", {name: ""}, why)
        self._restarts.back(name)
        self._run(self._workers.engine_restarted(engine_id, self._engines[engine_id], self.model))

    async def _restart(self, engine_id: int) -> None:
        assert self._refill is not None, "engines are watched before one is replaced"
        await self._end(self._engines[engine_id])
        engine = self._spawned(engine_id)
        try:
            async with self._turns.start() if self._devices else nullcontext():
                await self._start(engine_id, engine)
            await self._refill(engine)
        except BaseException:
            await self._end(engine)
            raise
        # Nothing is awaited between the refill and here: no publication can pass this engine by.
        self._engines[engine_id] = engine
        self._down.discard(engine_id)

    async def _end(self, engine: RemoteEngine) -> None:
        self._ending.add(engine)
        try:
            with suppress(AgentRLError):
                await engine.close(END_S)
        finally:
            engine.actor.kill()
            self._ending.discard(engine)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._stop.if_failed)

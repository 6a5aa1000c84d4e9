"""The engines of a run: started together, replaced when they die, all serving what was published last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from agentrl.cluster.ray import ActorHandle, ActorSpec, Cluster
from agentrl.cluster.roles import RemoteEngine
from agentrl.errors import AgentRLError, RunError
from agentrl.weights.publisher import PublicationError, Published

HEARTBEAT_S = 2.0
ANSWER_S = 120.0
END_S = 6.0

Told = Callable[[int, RemoteEngine | None, str], Awaitable[None]]


class Engines:
    """Engine number i is described by `role(i)`; `register` hears of each process, `told` of each loss and return.

    An engine that dies, does not answer, or does not hold what was published is replaced, at most `restarts` times in a
    run: then `failed` gets the error. `refill` publishes the present weights to one engine.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Callable[[int], ActorSpec],
        count: int,
        restarts: int,
        start_timeout_s: float,
        register: Callable[[str, int], None],
    ) -> None:
        self._cluster, self._role, self._restarts = cluster, role, restarts
        self._start_timeout_s, self._register = start_timeout_s, register
        self._engines = [RemoteEngine(cluster.spawn(role(place))) for place in range(count)]
        self._repairs: dict[int, asyncio.Task[None]] = {}
        self._down: set[int] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._is_closing = False
        self.deaths = 0
        self.told: Told | None = None
        self.refill: Callable[[RemoteEngine], Awaitable[None]] | None = None
        self.failed: Callable[[BaseException], None] | None = None

    @property
    def remotes(self) -> list[ActorHandle]:
        """What rollout workers are given: the engines that serve weights, or served them last."""
        return [engine.remote for engine in self._engines]

    async def start(self) -> None:
        """Wait until every engine has loaded the model."""
        await asyncio.gather(*(self._start(engine) for engine in self._engines))

    def watch(self) -> None:
        """Look after the engines from now on."""
        self._watches = [asyncio.create_task(self._watch(place)) for place in range(len(self._engines))]

    async def publish(self, bring: Callable[[Sequence[RemoteEngine]], Awaitable[Published]]) -> Published:
        """`bring` a version to every engine that is up; one that fails is replaced, and refilled when it is back."""
        places = [place for place in range(len(self._engines)) if place not in self._down]
        if not places:
            return Published()
        try:
            return await bring([self._engines[place] for place in places])
        except PublicationError as error:
            for fault, reason in error.faults.items():
                self.repair(places[fault], self._engines[places[fault]], str(reason))
            return Published()

    async def sleep(self, deadline_s: float) -> None:
        """Give the GPUs to the learner that shares them."""
        await asyncio.gather(*(engine.sleep(deadline_s) for engine in self._engines))

    async def wake(self, deadline_s: float) -> None:
        """Take them back; weights must be published before anything is sampled."""
        await asyncio.gather(*(engine.wake(deadline_s) for engine in self._engines))

    def repair(self, place: int, engine: RemoteEngine, why: str) -> None:
        """Replace `engine`, which was number `place`, unless that is under way or done."""
        if self._is_closing or place in self._repairs or self._engines[place] is not engine:
            return
        self._down.add(place)
        self._repairs[place] = task = asyncio.create_task(self._replace(place, engine, why))
        task.add_done_callback(lambda done: self._repaired(place, done))

    async def close(self) -> None:
        """End every engine and its processes. Idempotent."""
        self._is_closing = True
        tasks = [*self._watches, *self._repairs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._end(engine) for engine in self._engines))

    # --- inside ---------------------------------------------------------------------------------------------

    async def _start(self, engine: RemoteEngine) -> None:
        await engine.remote.make(deadline_s=self._start_timeout_s)
        await engine.start(self._start_timeout_s)
        for pid in await engine.pids():
            self._register(engine.remote.name, pid)

    async def _watch(self, place: int) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            engine = self._engines[place]
            if place in self._repairs:
                continue
            try:
                await engine.check(ANSWER_S)
            except AgentRLError as error:
                self.repair(place, engine, str(error))

    async def _replace(self, place: int, dead: RemoteEngine, why: str) -> None:
        self.deaths += 1
        await self._tell(place, None, why)
        if self.deaths > self._restarts:
            raise RunError(f"engines died {self.deaths} times (engine.restarts = {self._restarts}); the last: {why}")
        await self._end(dead)
        engine = RemoteEngine(self._cluster.spawn(self._role(place)))
        try:
            await self._start(engine)
            if self.refill is not None:
                await self.refill(engine)
            # Nothing is awaited between the refill and here: no publication can pass this engine by.
            self._engines[place] = engine
            self._down.discard(place)
        finally:
            if self._engines[place] is not engine:
                await self._end(engine)
        await self._tell(place, engine, why)

    def _repaired(self, place: int, task: asyncio.Task[None]) -> None:
        del self._repairs[place]
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RunError) and self.failed is not None:
            self.failed(error)
            return
        self.repair(place, self._engines[place], str(error))

    async def _tell(self, place: int, engine: RemoteEngine | None, why: str) -> None:
        if self.told is not None:
            await self.told(place, engine, why)

    @staticmethod
    async def _end(engine: RemoteEngine) -> None:
        with suppress(AgentRLError):
            await engine.close(END_S)
        engine.remote.kill()

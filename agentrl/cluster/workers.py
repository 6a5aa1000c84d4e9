"""The rollout workers of a run: episodes go out, trajectories come back, and dead workers are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count as counting
from typing import Any

from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import together
from agentrl.config.schema import POLICY
from agentrl.engine.wire import Transport
from agentrl.errors import AgentRLError, DeadlineError, WorkerLostError
from agentrl.records.restarts import Restarts
from agentrl.roles import RoleReply
from agentrl.rollout.slots import Slots
from agentrl.types import TRAIN, EpisodeRequest, Trajectory

GRACE_S = 60.0
START_S = 300.0
END_S = 6.0

Fleets = Mapping[str, Sequence[Transport]]
"""The engines by their model: `POLICY`, and the models that play roles."""
Rewarded = Callable[[Trajectory], Awaitable[Trajectory]]


class Workers:
    """All rollout workers of a run. Groups go to the workers in turn; the members of a group share one.

    `spec_of(engines, worker_id)` specifies a worker; engines are known by their model. `slots` limit the episodes of an
    environment. `rewarded` adds the signals of reward models to a finished trajectory. `patience_s` is how long an
    episode may wait for a role.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec_of: Callable[[Fleets, int], ActorSpec],
        count: int,
        restarts: Restarts,
        slots: Slots,
        rewarded: Rewarded | None = None,
        patience_s: float = 0.0,
    ) -> None:
        self._cluster, self._spec_of = cluster, spec_of
        self._restarts, self._slots, self._rewarded = restarts, slots, rewarded
        self._patience_s = patience_s
        self._engines: dict[str, list[Transport]] = {}
        self._workers: list[ActorHandle] = []
        self._locks = [asyncio.Lock() for _ in range(count)]
        self._questions = counting()

    async def start(self, engines: Fleets) -> None:
        """Wait until every worker has its environment, tokenizer and tasks; all of them sample from `engines`."""
        self._engines = {model: list(fleet) for model, fleet in engines.items()}
        self._workers = [self._spawned(worker_id) for worker_id in range(len(self._locks))]
        await together(self._make(worker) for worker in self._workers)
        await together(worker.call("task_count", TRAIN, deadline_s=START_S) for worker in self._workers)

    async def task_count(self, split: str) -> dict[str, int | None]:
        """Return how many tasks a split has in each environment, None if they are endless."""
        counts: dict[str, int | None] = await self._workers[0].call("task_count", split, deadline_s=START_S)
        return counts

    async def with_group_rewards(self) -> set[str]:
        """Return the environments in which the trajectories of a group must pass through `score_group`."""
        labels: set[str] = await self._workers[0].call("with_group_rewards", deadline_s=START_S)
        return labels

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return the finished members of a group with their group rewards. Raises WorkerLostError."""
        group = trajectories[0].sample.group
        scored: Sequence[Trajectory] = await self._ask(
            group, "score_group", list(trajectories), deadline_s=START_S + self._patience_s
        )
        return scored

    async def judged(self, judge: str, question: str, timeout_s: float) -> RoleReply:
        """Return the reply of a judge on an engine. The workers ask it in turn; a lost one's question is asked again.

        Raises RoleError or EngineError if there is no reply.
        """
        while True:
            with suppress(WorkerLostError):  # it has been replaced, as often as the run allows
                reply: RoleReply = await self._ask(
                    next(self._questions), "judged", judge, question, deadline_s=timeout_s + GRACE_S
                )
                return reply

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        """Run one episode, once its environment has a free slot, and ask the reward models for it.

        Raises WorkerLostError if its worker died or does not answer; it is then replaced.
        """
        deadline_s = request.settings.episode_timeout_s + GRACE_S + self._patience_s
        async with self._slots.of(request.env):
            trajectory: Trajectory = await self._ask(request.sample.group, "run", request, deadline_s=deadline_s)
        return await self._rewarded(trajectory) if self._rewarded else trajectory

    async def close(self) -> None:
        """Let every worker tear down its episodes and shared resources, for at most END_S seconds."""
        await asyncio.gather(*(self._close(worker) for worker in self._workers))

    @staticmethod
    async def _close(worker: ActorHandle) -> None:
        with suppress(AgentRLError):
            await worker.call("close", deadline_s=END_S)

    async def engine_lost(self, engine_id: int, why: str, model: str = POLICY) -> None:
        """Let every worker send the engine's requests elsewhere."""
        await self._broadcast("engine_lost", engine_id, why, model)

    async def engine_restarted(self, engine_id: int, engine: Transport, model: str = POLICY) -> None:
        """Let every worker send requests to `engine`, which replaces a lost one and serves weights."""
        self._engines[model][engine_id] = engine
        await self._broadcast("engine_restarted", engine_id, engine, model)

    async def _broadcast(self, method: str, *args: Any) -> None:
        """Call a method of every worker; those that fail are replaced."""
        await asyncio.gather(*(self._notify(worker_id, method, *args) for worker_id in range(len(self._workers))))

    async def _notify(self, worker_id: int, method: str, *args: Any) -> None:
        worker = await self._ready(worker_id)
        try:
            await worker.call(method, *args, deadline_s=GRACE_S)
        except AgentRLError as error:
            with suppress(WorkerLostError):  # its next episode replaces it again
                await self._replace(worker_id, worker, str(error))

    async def _ask(self, turn: int, method: str, *args: Any, deadline_s: float) -> Any:
        """Call the worker whose turn it is, and replace it if it died or missed the deadline."""
        worker_id = turn % len(self._workers)
        worker = await self._ready(worker_id)
        try:
            return await worker.call(method, *args, deadline_s=deadline_s)
        except (WorkerLostError, DeadlineError) as error:
            await self._replace(worker_id, worker, str(error))
            raise WorkerLostError(str(error)) from None

    async def _ready(self, worker_id: int) -> ActorHandle:
        """Return a worker once its start, if it is being replaced, has ended: Ray keeps no order of calls."""
        async with self._locks[worker_id]:
            return self._workers[worker_id]

    async def _replace(self, worker_id: int, dead: ActorHandle, why: str) -> None:
        async with self._locks[worker_id]:
            if self._workers[worker_id] is not dead:
                return
            self._restarts.lost("rollout workers", {dead.name: dead.host}, why)
            dead.kill()
            self._workers[worker_id] = worker = self._spawned(worker_id)
            await self._make(worker)
            self._restarts.back(worker.name)

    def _spawned(self, worker_id: int) -> ActorHandle:
        return self._cluster.spawn(self._spec_of(self._engines, worker_id))

    async def _make(self, worker: ActorHandle) -> None:
        self._cluster.register(await worker.make(deadline_s=START_S))

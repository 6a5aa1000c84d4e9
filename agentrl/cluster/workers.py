"""The rollout workers of a run: episodes go out, trajectories come back, and dead workers are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from agentrl.cluster.ray import ActorHandle, ActorSpec, Cluster
from agentrl.errors import AgentRLError, DeadlineError, RunError, WorkerLostError
from agentrl.types import TRAIN, EpisodeRequest, SampleId, Trajectory

GRACE_S = 60.0
START_S = 300.0
END_S = 6.0


class Workers:
    """All rollout workers of a run. Groups go to the workers in turn; the members of a group share one.

    `spec_of(worker_id)` specifies a worker; `register(name, pid)` records each process, and `lost(name, why)` each that
    is replaced. The run stops after more than `restarts` deaths.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec_of: Callable[[int], ActorSpec],
        count: int,
        restarts: int,
        register: Callable[[str, int], None],
        lost: Callable[[str, str], None],
    ) -> None:
        self._cluster, self._spec_of, self._restarts = cluster, spec_of, restarts
        self._register, self._lost = register, lost
        self._workers = [cluster.spawn(spec_of(worker_id)) for worker_id in range(count)]
        self._locks = [asyncio.Lock() for _ in range(count)]
        self._deaths = 0

    async def start(self) -> None:
        """Wait until every worker has its environment, tokenizer and tasks."""
        await asyncio.gather(*(self._make(worker) for worker in self._workers))
        await asyncio.gather(*(w.call("task_count", TRAIN, deadline_s=START_S) for w in self._workers))

    async def task_count(self, split: str) -> int | None:
        """Return how many tasks a split has, None if it is endless."""
        count: int | None = await self._workers[0].call("task_count", split, deadline_s=START_S)
        return count

    async def has_group_rewards(self) -> bool:
        """Return whether the trajectories of a group must pass through `score_group` before they count."""
        has: bool = await self._workers[0].call("has_group_rewards", deadline_s=START_S)
        return has

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return the finished members of a group with their group rewards. Raises WorkerLostError."""
        sample = trajectories[0].sample
        scored: Sequence[Trajectory] = await self._ask(sample, "score_group", list(trajectories), deadline_s=START_S)
        return scored

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        """Run one episode. Raises WorkerLostError if its worker died or does not answer; it is then replaced."""
        deadline_s = request.settings.episode_timeout_s + GRACE_S
        trajectory: Trajectory = await self._ask(request.sample, "run", request, deadline_s=deadline_s)
        return trajectory

    async def close(self) -> None:
        """Let every worker tear down its episodes and shared resources, for at most END_S seconds."""
        await asyncio.gather(*(self._close(worker) for worker in self._workers))

    @staticmethod
    async def _close(worker: ActorHandle) -> None:
        with suppress(AgentRLError):
            await worker.call("close", deadline_s=END_S)

    async def broadcast(self, method: str, *args: Any) -> None:
        """Call a method of every worker, except those that are dying: their successors start with the present state."""
        await asyncio.gather(*(self._notify(worker, method, *args) for worker in self._workers))

    @staticmethod
    async def _notify(worker: ActorHandle, method: str, *args: Any) -> None:
        with suppress(WorkerLostError, DeadlineError):
            await worker.call(method, *args, deadline_s=GRACE_S)

    async def _ask(self, sample: SampleId, method: str, *args: Any, deadline_s: float) -> Any:
        """Call the sample's worker, and replace it if it died or missed the deadline."""
        worker_id = sample.group % len(self._workers)
        worker = self._workers[worker_id]
        try:
            return await worker.call(method, *args, deadline_s=deadline_s)
        except (WorkerLostError, DeadlineError) as error:
            await self._replace(worker_id, worker, str(error))
            raise WorkerLostError(str(error)) from None

    async def _replace(self, worker_id: int, dead: ActorHandle, why: str) -> None:
        async with self._locks[worker_id]:
            if self._workers[worker_id] is not dead:
                return
            self._deaths += 1
            if self._deaths > self._restarts:
                raise RunError(f"rollout workers died {self._deaths} times (engine.restarts = {self._restarts}): {why}")
            self._lost(dead.name, why)
            dead.kill()
            self._workers[worker_id] = worker = self._cluster.spawn(self._spec_of(worker_id))
            await self._make(worker)

    async def _make(self, worker: ActorHandle) -> None:
        self._register(worker.name, await worker.make(deadline_s=START_S))

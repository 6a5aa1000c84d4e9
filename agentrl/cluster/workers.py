"""The rollout workers of a run: episodes go out, trajectories come back, dead workers are replaced."""

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
    """Groups are dealt over the workers in turn; the members of a group share one.

    `role(i)` describes worker i; `register` is told of every process, `told` of each that is lost.
    After more than `restarts` deaths the run stops.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Callable[[int], ActorSpec],
        count: int,
        restarts: int,
        register: Callable[[str, int], None],
    ) -> None:
        self._cluster, self._role, self._restarts, self._register = cluster, role, restarts, register
        self._workers = [cluster.spawn(role(i)) for i in range(count)]
        self._locks = [asyncio.Lock() for _ in range(count)]
        self.deaths = 0
        self.told: Callable[[int, str], None] | None = None

    async def start(self) -> None:
        """Wait until every worker has made its environment and tokenizer and read its tasks."""
        await asyncio.gather(*(self._registered(i) for i in range(len(self._workers))))
        await asyncio.gather(*(w.call("task_count", TRAIN, deadline_s=START_S) for w in self._workers))

    async def task_count(self, split: str) -> int | None:
        """How many tasks a split has, None when it is endless."""
        count: int | None = await self._workers[0].call("task_count", split, deadline_s=START_S)
        return count

    async def has_group_rewards(self) -> bool:
        """True when a group's trajectories must pass through `score_group` before they count."""
        has: bool = await self._workers[0].call("has_group_rewards", deadline_s=START_S)
        return has

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """The finished members of one group with their group rewards. Raises WorkerLostError."""
        sample = trajectories[0].sample
        scored: Sequence[Trajectory] = await self._ask(sample, "score_group", list(trajectories), deadline_s=START_S)
        return scored

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        """Run one episode. Raises WorkerLostError when its worker died or does not answer: it is replaced then."""
        deadline_s = request.episode_timeout_s + GRACE_S
        trajectory: Trajectory = await self._ask(request.sample, "run", request, deadline_s=deadline_s)
        return trajectory

    async def close(self) -> None:
        """Let every worker tear down its episodes and shared resources; past END_S they end without."""
        await asyncio.gather(*(self._closed(worker) for worker in self._workers))

    @staticmethod
    async def _closed(worker: ActorHandle) -> None:
        with suppress(AgentRLError):
            await worker.call("close", deadline_s=END_S)

    async def broadcast(self, method: str, *args: Any) -> None:
        """Call a method of every worker; one that is dying hears nothing, its successor is told when it is made."""
        await asyncio.gather(*(self._told(worker, method, *args) for worker in self._workers))

    @staticmethod
    async def _told(worker: ActorHandle, method: str, *args: Any) -> None:
        with suppress(WorkerLostError, DeadlineError):
            await worker.call(method, *args, deadline_s=GRACE_S)

    async def _ask(self, sample: SampleId, method: str, *args: Any, deadline_s: float) -> Any:
        """Ask the sample's worker; one that died, or that its own deadlines did not bring to an answer, is replaced."""
        index = sample.group % len(self._workers)
        worker = self._workers[index]
        try:
            return await worker.call(method, *args, deadline_s=deadline_s)
        except (WorkerLostError, DeadlineError) as error:
            await self._replace(index, worker, str(error))
            raise WorkerLostError(str(error)) from None

    async def _replace(self, index: int, dead: ActorHandle, why: str) -> None:
        async with self._locks[index]:
            if self._workers[index] is not dead:
                return
            self.deaths += 1
            if self.deaths > self._restarts:
                raise RunError(f"rollout workers died {self.deaths} times (engine.restarts = {self._restarts}): {why}")
            if self.told is not None:
                self.told(index, why)
            dead.kill()
            self._workers[index] = self._cluster.spawn(self._role(index))
            await self._registered(index)

    async def _registered(self, index: int) -> None:
        worker = self._workers[index]
        self._register(worker.name, await worker.make(deadline_s=START_S))

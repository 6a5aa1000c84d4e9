"""Simulated rollout workers: they play recorded episodes against simulated engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from agentrl.errors import WorkerLostError
from agentrl.planning.simulation.cache import Context, contexts
from agentrl.planning.simulation.engine import SimulatedEngine
from agentrl.planning.simulation.episode import Episode, Spans
from agentrl.planning.simulation.workload import Workload
from agentrl.rollout.slots import Slots
from agentrl.types import EpisodeRequest, Trajectory


class SimulatedWorker:
    """Plays episodes; what it computes itself, it computes one after the other.

    The first request of an episode goes to the engine with the fewest requests of this worker, the others to the same.
    `dispatch_s` is what an episode costs the worker besides.
    """

    def __init__(self, engines: Sequence[SimulatedEngine], dispatch_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._in_flight = dict.fromkeys(engines, 0)
        self._dispatch_s, self._free_at = dispatch_s, 0.0
        self.busy_s = 0.0

    async def play(self, request: EpisodeRequest, episode: Episode) -> Trajectory:
        """Play an episode: the environment, the engines and the worker take as long as they were recorded or fitted."""
        await self._compute(self._dispatch_s + episode.worker_s)
        if not episode.turns:
            await asyncio.sleep(episode.env_s + episode.engine_s + episode.score_s)
            return episode.trajectory(request, (), episode.engine_s)
        engine: SimulatedEngine | None = None
        spans: list[Spans] = []
        engine_s = 0.0
        named = contexts(episode, (request.sample, request.attempt), request.sample.group)
        for turn, context in zip(episode.turns, named, strict=True):
            await asyncio.sleep(episode.pause_s)
            engine = engine or min(self._in_flight, key=self._in_flight.__getitem__)
            began = self._loop.time()
            spans.append(await self._sample(engine, turn.sampled, context))
            engine_s += self._loop.time() - began
        await asyncio.sleep(episode.pause_s + episode.score_s)
        return episode.trajectory(request, spans, engine_s)

    async def _sample(self, engine: SimulatedEngine, length: int, context: Context) -> Spans:
        self._in_flight[engine] += 1
        try:
            return await engine.generate(length, context)
        finally:
            self._in_flight[engine] -= 1

    async def _compute(self, seconds: float) -> None:
        now = self._loop.time()
        self._free_at = max(now, self._free_at) + seconds
        self.busy_s += seconds
        await asyncio.sleep(self._free_at - now)


class SimulatedWorkers:
    """All workers: groups go to them in turn, and `limits` bounds the episodes of an environment."""

    def __init__(self, workers: Sequence[SimulatedWorker], workload: Workload, limits: Mapping[str, int]) -> None:
        self._workers, self._workload, self._slots = workers, workload, Slots(limits)

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        """Play the recorded attempt that the workload deals to a request. Raises WorkerLostError as it did."""
        attempt = self._workload.attempt(request)
        async with self._slots.of(request.env):
            if attempt.episode is None:
                await asyncio.sleep(attempt.seconds)
                raise WorkerLostError("the process of the recorded attempt died")
            worker = self._workers[request.sample.group % len(self._workers)]
            return await worker.play(request, attempt.episode)

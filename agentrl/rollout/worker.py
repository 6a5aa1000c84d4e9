"""The rollout worker: one env class, one tokenizer and one event loop for thousands of episodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agentrl.env import EnvDriver, Episode, close_shared, env_config, resolve
from agentrl.rollout.boundary import Phase, boundary, ended, with_signals
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime, Sampler
from agentrl.rollout.renderer import load_renderer
from agentrl.types import EpisodeRequest, SampleId, Signal, Trajectory

CLOSE_TIMEOUT_S = 30.0


class RolloutWorker:
    """Runs the episodes of one environment with one model's tokenizer.

    A plain class, which `agentrl.cluster` runs in a process. `model` is a folder or hub id, whose tokenizer is loaded
    here; the run's `seed` determines the tasks of an endless split.
    """

    def __init__(
        self, env: str, env_options: dict[str, Any], model: str, engine: Sampler, max_context: int, seed: int = 0
    ) -> None:
        from transformers import AutoTokenizer  # slow to import, and the driver process imports this file

        env_class = resolve(env)
        config = env_config(env_class, env_options)
        renderer = load_renderer(AutoTokenizer.from_pretrained(model))
        self._runtime = EpisodeRuntime(
            lambda max_turns: EnvDriver(env_class(config), max_turns), renderer, engine, max_context, seed
        )
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, request: EpisodeRequest) -> Trajectory:
        """Run one attempt at one sample; never raises an error of the env, the model or the engine."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._running.add(task)
        try:
            return await EpisodeRunner(request, self._runtime).run()
        finally:
            self._running.discard(task)

    async def task_count(self, split: str) -> int | None:
        """Load the tasks of a split and return their number; None if they are endless."""
        return await self._runtime.make_driver(0).size(split, self._runtime.seed)

    def has_group_rewards(self) -> bool:
        """True if the trajectories of a group need `score_group` before they count."""
        return self._runtime.make_driver(0).has_group_rewards

    async def score_group(self, trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
        """Add the group rewards to the finished episodes of one group; others are unchanged.

        If a group reward fails, all of them end with VERIFIER_ERROR and have no reward, instead of a reward of 0.
        """
        scored = {t.sample: t for t in trajectories if (t.is_scored or t.stop_reason.is_scored) and t.action_tokens}
        if not scored:
            return tuple(trajectories)
        with boundary(lambda: Phase.SCORE) as caught:
            signals = await self._group_signals(tuple(scored.values()))
        if ending := caught.ending:
            return tuple(ended(t, ending) if t.sample in scored else t for t in trajectories)
        return tuple(with_signals(t, signals.get(t.sample, ())) for t in trajectories)

    async def close(self) -> None:
        """Cancel running episodes, wait for their teardown, close the shared resources. Idempotent."""
        running = self._running - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        await close_shared()

    async def _group_signals(self, trajectories: tuple[Trajectory, ...]) -> dict[SampleId, tuple[Signal, ...]]:
        driver, first = self._runtime.make_driver(0), trajectories[0]
        task = await driver.task(first.split, first.task_index, self._runtime.seed)
        rows = await driver.score_group([Episode.of(task, t) for t in trajectories])
        return {t.sample: row for t, row in zip(trajectories, rows, strict=True)}

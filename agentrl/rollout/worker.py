"""What runs episodes: one env class, one tokenizer, one asyncio loop, thousands of episodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformers import AutoTokenizer

from agentrl.env import EnvDriver, Episode, close_shared, env_config, resolve
from agentrl.rollout.boundary import Ending, Phase, boundary, undecided
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime, Sampler
from agentrl.rollout.renderer import load_renderer
from agentrl.types import EpisodeRequest, SampleId, Signal, Trajectory

CLOSE_TIMEOUT_S = 30.0


class RolloutWorker:
    """Runs the episodes of one environment with one model's tokenizer.

    A plain class: cluster.py gives it a process. `model` is a folder or hub id (its tokenizer is read once, here);
    `seed` is the run's, which fixes the tasks of an endless split.
    """

    def __init__(
        self, env: str, env_options: dict[str, Any], model: str, engine: Sampler, max_context: int, seed: int = 0
    ) -> None:
        env_class = resolve(env)
        config = env_config(env_class, env_options)
        renderer = load_renderer(AutoTokenizer.from_pretrained(model))
        self._stage = EpisodeRuntime(
            lambda max_turns: EnvDriver(env_class(config), max_turns), renderer, engine, max_context, seed
        )
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, request: EpisodeRequest) -> Trajectory:
        """One attempt at one sample; never raises what the env, the model or the engine raised."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._running.add(task)
        try:
            return await EpisodeRunner(request, self._stage).run()
        finally:
            self._running.discard(task)

    async def task_count(self, split: str) -> int | None:
        """How many tasks a split has; None when they are endless. Loads them."""
        return await self._stage.make_driver(0).size(split, self._stage.seed)

    def has_group_rewards(self) -> bool:
        """True when the trajectories of a group must pass through `score_group` before they count."""
        return self._stage.make_driver(0).has_group_rewards

    async def score_group(self, trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
        """The finished episodes of one group with their group rewards added; those without a score or an answer stay.

        A verifier that fails makes all of them VERIFIER_ERROR: they have no reward, not a reward of 0.
        """
        ended = [t for t in trajectories if t.is_scored or t.stop_reason.is_scored]
        scored = {t.sample: t for t in ended if not t.is_unanswered}
        if not scored:
            return tuple(trajectories)
        with boundary(lambda: Phase.SCORE) as caught:
            signals = await self._group_signals(tuple(scored.values()))
        if ending := caught.ending:
            return tuple(_ended(t, ending) if t.sample in scored else t for t in trajectories)
        return tuple(_with_signals(t, signals.get(t.sample, ())) for t in trajectories)

    async def close(self) -> None:
        """Cancel what runs, wait until it is torn down, close the shared resources. Idempotent."""
        running = self._running - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        await close_shared()

    async def _group_signals(self, trajectories: tuple[Trajectory, ...]) -> dict[SampleId, tuple[Signal, ...]]:
        driver, first = self._stage.make_driver(0), trajectories[0]
        task = await driver.task(first.split, first.task_index, self._stage.seed)
        rows = await driver.score_group([Episode.of(task, t) for t in trajectories])
        return {t.sample: row for t, row in zip(trajectories, rows, strict=True)}


def _with_signals(trajectory: Trajectory, signals: tuple[Signal, ...]) -> Trajectory:
    scored = replace(trajectory, signals=(*trajectory.signals, *signals))
    ending = undecided(signals)
    return _ended(scored, ending) if ending else scored


def _ended(trajectory: Trajectory, ending: Ending) -> Trajectory:
    return replace(trajectory, stop_reason=ending.stop_reason, error=ending.error, traceback=ending.traceback)

"""The rollout worker: one env class, one tokenizer and one event loop for thousands of episodes at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrl.endpoint import POLICY, Endpoint
from agentrl.env import Episode, close_shared
from agentrl.errors import ConfigError
from agentrl.hosting.environments import environment
from agentrl.hosting.host import HostedEnv, check_played
from agentrl.roles import Player
from agentrl.roles.remote import Players
from agentrl.roles.spec import RoleSpec
from agentrl.rollout.boundary import Phase, boundary, ended, with_signals
from agentrl.rollout.engine_player import EnginePlayer, SampledModel
from agentrl.rollout.episode import Driver, EpisodeRunner, EpisodeRuntime, Sampler
from agentrl.rollout.renderer import Renderer, load_renderer
from agentrl.types import EpisodeRequest, RoleUse, SampleId, Signal, Trajectory

CLOSE_TIMEOUT_S = 30.0


def spare_collections() -> None:
    """Collect garbage less often from now on: imports leave none, and thousands of episodes leave little."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


class RolloutWorker:
    """Runs the episodes of one environment with one model's tokenizer.

    A plain class, which `agentrl.cluster` runs in a process. `model` is a folder or hub id, whose tokenizer is loaded
    here; the run's `seed` determines the tasks of an endless split. `players` has the endpoints of those `roles` that
    have one, and `others` the models that play some of the rest; the policy plays what is left. Raises ConfigError for
    a role of the environment that is not among them.
    `python` is the interpreter of the environment, by default this one; its process is started again up to `restarts`
    times. With `is_apart` it has a process of its own in this interpreter too.
    """

    def __init__(
        self,
        env: str,
        env_options: dict[str, Any],
        model: str,
        engine: Sampler,
        max_context: int,
        seed: int = 0,
        roles: Iterable[RoleSpec] = (),
        players: Players | None = None,
        others: Mapping[str, SampledModel] = MappingProxyType({}),
        python: Path | None = None,
        restarts: int = 0,
        *,
        is_apart: bool = False,
    ) -> None:
        self._env = environment(env, env_options, python, restarts, is_apart=is_apart)
        renderer = load_renderer_of(model)
        models = {POLICY: SampledModel(renderer, engine, max_context), **others}
        self._own_players: Players | None = None
        if players is None:
            players = self._own_players = Players()
        castings = {role.name: role.played_by(_player(role, players, models)) for role in roles}
        driver: Callable[[int], Driver] = self._env.driver
        if isinstance(self._env, HostedEnv):
            check_played(self._env, castings)
            driver = partial(self._env.driver, castings=castings)
        else:
            self._env.cast(castings)
        self._runtime = EpisodeRuntime(
            driver,
            renderer,
            engine,
            max_context,
            Endpoint(max_context),
            seed,
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

    async def has_group_rewards(self) -> bool:
        """True if the trajectories of a group need `score_group` before they count."""
        return (await self._env.facts()).has_group_rewards

    async def score_group(self, trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
        """Add the group rewards to the finished episodes of one group; others are unchanged.

        If a group reward fails, all of them end with VERIFIER_ERROR and have no reward, instead of a reward of 0.
        """
        scored = {t.sample: t for t in trajectories if is_compared(t)}
        if not scored:
            return tuple(trajectories)
        with boundary(lambda: Phase.SCORE) as caught:
            signals, uses = await self._group_signals(tuple(scored.values()))
        if ending := caught.ending:
            return tuple(ended(t, ending) if t.sample in scored else t for t in trajectories)
        first = next(iter(scored))
        return tuple(
            with_signals(_with_uses(t, uses) if t.sample == first else t, signals.get(t.sample, ()))
            for t in trajectories
        )

    async def close(self) -> None:
        """Cancel running episodes, wait for their teardown, close the shared resources. Idempotent."""
        await self.stop()
        await close_shared()
        if self._own_players is not None:
            await self._own_players.aclose()

    async def stop(self) -> None:
        """Cancel running episodes, wait for their teardown, end the environment's process, and close the endpoint."""
        running = self._running - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        await self._env.close()
        await self._runtime.endpoint.close()

    async def _group_signals(
        self, trajectories: tuple[Trajectory, ...]
    ) -> tuple[dict[SampleId, tuple[Signal, ...]], dict[str, RoleUse]]:
        """Return the signals of each sample, and what the rewards asked of roles."""
        driver, first = self._runtime.make_driver(0), trajectories[0]
        task = await driver.task(first.split, first.task_index, self._runtime.seed)
        rows = await driver.score_group([Episode.of(task, t) for t in trajectories])
        return {t.sample: row for t, row in zip(trajectories, rows, strict=True)}, driver.role_uses


def is_compared(trajectory: Trajectory) -> bool:
    """Return whether the rewards of a group compare this member: it is finished and has sampled tokens."""
    return (trajectory.is_scored or trajectory.stop_reason.is_scored) and trajectory.action_tokens > 0


def load_renderer_of(model: str) -> Renderer:
    """Load the renderer of the model in a folder, or of a hub id."""
    from transformers import AutoTokenizer  # slow to import, and the driver process imports this file

    return load_renderer(AutoTokenizer.from_pretrained(model))


def _player(role: RoleSpec, players: Players, models: Mapping[str, SampledModel]) -> Player:
    """Return who plays a role: its endpoint, or a model on engines."""
    if role.keys.url:
        return players.of(role)
    if role.keys.model not in models:
        raise ConfigError(
            f"roles.{role.name}.model: {role.keys.model} has no engine here: serve it, and set roles.{role.name}.url"
        )
    return EnginePlayer(role, models[role.keys.model])


def _with_uses(trajectory: Trajectory, uses: dict[str, RoleUse]) -> Trajectory:
    """Return the trajectory with further calls of roles."""
    known = trajectory.roles
    return replace(trajectory, roles=known | {name: known.get(name, RoleUse()) + use for name, use in uses.items()})

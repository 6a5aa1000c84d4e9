"""Checks of an environment: its own evidence, and that episodes do not affect each other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from agentrl.env.base import Env, Policy
from agentrl.env.comparison import difference
from agentrl.env.context import Episode
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.driver.resources import close_shared
from agentrl.env.gymnasium import GymnasiumEnv
from agentrl.env.play import aplay
from agentrl.env.policies import NOISE, canaries_of, echo, player_of, saying, solution_of, solution_reward
from agentrl.env.tasks import Task
from agentrl.env.testing.cancellation import cancel_everywhere, described
from agentrl.env.testing.episodes import (
    ChoosePolicy,
    MakeEnv,
    Moment,
    check_positive,
    moments,
    play_each,
    play_signals,
    sample_tasks,
    signals_of,
)
from agentrl.errors import ConfigError
from agentrl.plugins.blocking import run_in_thread
from agentrl.plugins.tracebacks import defined_at
from agentrl.types import TRAIN, Message

T = TypeVar("T")
ROUNDING = 1e-9
STEP_S = 1.0


def check_environment(make: MakeEnv, *, tasks: int = 4, episodes: int = 32, timeout_s: float = 300.0) -> None:
    """Run every check of this kit, then Gymnasium's `check_env`; `make` is a class, or a function without arguments.

    Raises AssertionError, also when the checks take longer than `timeout_s`. Works inside a running event loop.
    """
    if not callable(make):
        raise TypeError(f"check_environment needs a class or a function that makes environments, not {make!r}")
    check_positive(tasks=tasks, episodes=episodes)
    if (env := make()) is make():
        raise ConfigError(f"check_environment: {make} returned the same object twice; return a new one at every call")
    run_in_thread(_check_all(make, tasks, episodes, timeout_s), timeout_s)
    check_gymnasium(env)


def check_gymnasium(env: Env) -> None:
    """Run Gymnasium's `check_env` on an environment object. It compares observations only if there is a spec."""
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.utils.env_checker import check_env

    with ExitStack() as made:

        def make(env: Env) -> _WithoutEvidence:
            made.callback((checked := _WithoutEvidence(env)).close)
            return checked

        checked = make(env)
        checked.spec = EnvSpec("agentrl/checked-v0", lambda **_: make(type(env)(env.config)))
        check_env(checked, skip_render_check=True)


class _WithoutEvidence(GymnasiumEnv):
    """An environment without the evidence of its signals: Gymnasium's check does not know that NaN equals NaN."""

    def step(self, action: Message | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        *result, info = super().step(action)
        return (*result, {"signals": [replace(signal, evidence=None) for signal in info["signals"]]})  # type: ignore[return-value]


async def _check_all(make: MakeEnv, tasks: int, episodes: int, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), no_leaks():
            await check_tasks(make, tasks=tasks)
            await check_oracle(make, tasks=tasks)
            await check_canaries(make, tasks=tasks)
            await check_twins(make)
            await check_concurrent(make, episodes, tasks=tasks)
            await check_cancellation(make)
    except TimeoutError as error:
        raise AssertionError(f"the checks took longer than {timeout_s:g} s; the traceback above shows where") from error


async def check_tasks(make: MakeEnv, *, tasks: int = 8) -> None:
    """Assert that tasks are the same when they are read again, as another process does."""
    first = await _sampled(make, tasks)
    await close_shared()
    for one, other in zip(first, await _sampled(make, tasks), strict=True):
        found = difference(one.id, other.id, "id") or difference(one.data, other.data, "data")
        assert not found, f"{_named(one)} is another task when the tasks are read again: {found}"


async def check_cancellation(make: MakeEnv, policy: ChoosePolicy = player_of, *, each_turn_s: float = math.inf) -> None:
    """Assert that an episode ends and leaves no task when it is cancelled at any await (`cancel_everywhere`)."""
    async for _ in cancel_everywhere(make, policy, each_turn_s=each_turn_s):
        pass


async def check_oracle(make: MakeEnv, *, tasks: int = 8, least: float | None = None) -> None:
    """Assert that the oracle of every sampled task earns at least `least`, up to rounding, and that it is a success.

    `least` is by default what the environment says of a solution (`Env.solved_reward`); where its own `success` decides
    alone, any valid reward will do. The oracle plays in a group of one, whose group rewards count.
    """
    least = solution_reward(make()) if least is None else least

    async def check(task: Task) -> None:
        solution = solution_of(env := make(), task)
        where = f"{type(env).__name__}.oracle{defined_at(env.oracle)}"
        assert solution is not None, f"{where} has no solution of {_named(task)}; write oracle(task)"
        episode = await _played(make, task, solution)
        if least is None:
            assert not _why(episode), f"the oracle of {_named(task)} is not scored{_why(episode)}"
        else:
            assert episode.reward >= least or _is_close(episode.reward, least), (
                f"the oracle of {_named(task)} earns {episode.reward}, not {least}{_why(episode)}"
            )
        _check_success(episode, f"the oracle of {_named(task)}", expected=True)

    await play_each(check, await _sampled(make, tasks))


async def check_canaries(make: MakeEnv, *, tasks: int = 8, most: float = 0.0) -> None:
    """Assert that every canary of every sampled task earns at most `most`, up to rounding, and that it is no success.

    Group rewards must be valid, but do not count: alone in its group, a canary is the best.
    """

    async def check(case: tuple[Task, str, Policy]) -> None:
        task, name, policy = case
        episode, canary = await _played(make, task, policy), f"canary {name!r} of {_named(task)}"
        assert not _why(episode), f"{canary} is not scored{_why(episode)}"
        own = tuple(signal for signal in episode.signals if signal.scope != "group")
        reward = replace(episode, signals=own).reward
        assert reward <= most or _is_close(reward, most), f"{canary} earns {reward}, more than {most}"
        _check_success(episode, canary, expected=False)

    sampled = await _sampled(make, tasks)
    await play_each(check, [(task, *canary) for task in sampled for canary in canaries_of(make(), task).items()])


def own_evidence(env: Env, task: Task) -> list[Policy]:
    """Return the oracle of a task, or else noise and an echo, its canaries, and a policy of empty turns."""
    solution = solution_of(env, task)
    players = [saying(NOISE), echo] if solution is None else [solution]
    return [*players, *canaries_of(env, task).values(), []]


async def check_concurrent(
    make: MakeEnv,
    count: int,
    policies: Callable[[Env, Task], Sequence[Policy]] = own_evidence,
    *,
    tasks: int = 8,
) -> None:
    """Assert that `count` episodes that are open at once earn what each earns alone; skips group rewards.

    All share one config, as in a run. Each asks for its own policy, so that a policy may count its turns.
    """
    check_positive(count=count)
    source = make()
    found = await _sampled(make, tasks)
    cases = [(task, index) for task in found for index in range(len(policies(source, task)))][:count]

    def play(one: Callable[..., T], make: MakeEnv, member: int) -> T:
        task, index = cases[member % len(cases)]
        env = make()
        return one(env, task, policies(env, task)[index], member=member)

    with shared_config(make) as again:
        # Alone in the other order: an episode that changes the next one is seen.
        alone = [await play(play_signals, again, member) for member in reversed(range(count))][::-1]
        together = await interleave([play(moments, again, member) for member in range(count)])
    for member, episode in enumerate(together):
        changed = difference(alone[member], signals_of(episode))
        assert not changed, (
            f"{_named(cases[member % len(cases)][0])} earns another reward when {count} episodes are open than alone: "
            f"episodes share state: {changed}"
        )
    paid = [{name: signal.value for name, signal in signals.items() if signal.weight} for signals in alone]
    assert len({*map(str, paid)}) > 1 or count == 1 or not any(paid), (
        f"every oracle and canary of {type(source).__name__} earns the same, and so does silence: "
        "shared state would go unnoticed; add a canary that earns less"
    )


@contextmanager
def shared_config(make: MakeEnv) -> Iterator[MakeEnv]:
    """Give what makes environments with one config, as in a run, and assert that their episodes do not change it."""
    config = make().config
    before = dict(config.model_copy(deep=True))

    def again() -> Env:
        vars(env := make())["config"] = config
        return env

    yield again
    changed = difference(before, dict(config))
    assert not changed, f"episodes changed self.config, which all episodes of a run share: {changed}"


async def check_twins(make: MakeEnv, policy: ChoosePolicy = player_of, *, tasks: int = 3) -> list[list[Any]]:
    """Assert that interleaved episodes of the same seed and member are equal, and that all others draw other numbers.

    Returns what the environment gave to seeds 0 and 1, two members each.
    """

    check_positive(tasks=tasks)
    size = await EnvDriver(make()).size(TRAIN)

    async def life(make: MakeEnv, seed: int, member: int) -> AsyncIterator[Any]:
        env = make()
        for index in range(tasks if size is None else min(tasks, size)):
            yield (task := await EnvDriver(env).task(TRAIN, index, seed))
            async for moment in moments(env, task, policy(env, task), seed=seed, member=member):
                yield moment

    kinds = [(seed, member) for seed in (0, 1) for member in (0, 1)]
    with shared_config(make) as again:
        lives = await interleave([life(again, *kind) for kind in kinds * 2])
    for (seed, member), one, twin in zip(kinds, lives, lives[len(kinds) :], strict=False):
        found = difference(one, twin)
        assert not found, f"two episodes with seed {seed} and member {member} differ at {found}"
    drawn = [moment.random for life in lives[: len(kinds)] for moment in life if isinstance(moment, Moment)]
    assert len({*drawn}) == len(drawn), "ctx.rng draws the same numbers in different episodes"
    return [[getattr(moment, "result", moment) for moment in life] for life in lives[: len(kinds)]]


def close_shared_sync() -> None:
    """Close what the synchronous calls share: `play`, `rehearse` and Gymnasium environments."""
    run_on_private_loop(close_shared())


@asynccontextmanager
async def no_leaks() -> AsyncIterator[None]:
    """Close what is shared at the end, and assert that no task is left."""
    before = asyncio.all_tasks()
    try:
        yield
    finally:
        await close_shared()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks were left: {described(left)}"


async def interleave(episodes: Sequence[AsyncIterator[Any]]) -> list[list[Any]]:
    """Advance all episodes in step, one item each per round; returns the items of each.

    An episode that does not advance within `STEP_S`, because it waits for what another holds, joins a later round.
    """
    received: list[list[Any]] = [[] for _ in episodes]
    ready = set(range(len(episodes)))
    steps: dict[asyncio.Future[Any], int] = {}
    try:
        while ready or steps:
            begun: dict[asyncio.Future[Any], int] = {
                asyncio.ensure_future(anext(episodes[number], None)): number for number in ready
            }
            steps |= begun
            done, _ = await asyncio.wait(begun, timeout=STEP_S) if begun else (set(), None)
            if not done:
                await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            items = {steps.pop(step): step.result() for step in [step for step in steps if step.done()]}
            for number, item in items.items():
                received[number].append(item)
            ready = {number for number, item in items.items() if item is not None}
    finally:
        for step in steps:
            step.cancel()
        if steps:
            await asyncio.wait(steps)
    return [items[:-1] for items in received]


async def _sampled(make: MakeEnv, count: int) -> list[Task]:
    return await sample_tasks(make(), count)


async def _played(make: MakeEnv, task: Task, policy: Policy) -> Episode:
    [episode] = await aplay(make(), (policy,), task)
    return episode


def _named(task: Task) -> str:
    return f"task {task.id!r} ({task.split})"


def _why(episode: Episode) -> str:
    reasons = [f"{signal.name}: {signal.reason}" for signal in episode.signals if not signal.valid and signal.weight]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _is_close(reward: float, limit: float) -> bool:
    return math.isclose(reward, limit, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _check_success(episode: Episode, who: str, *, expected: bool) -> None:
    """Assert that the environment's own `success`, if it has one, returns what is expected."""
    if success := episode.success:
        assert success.valid, f"{who} has no success: {success.reason}"
        assert success.value == expected, f"{who} earns {episode.reward:g}, and its success is {not expected}"

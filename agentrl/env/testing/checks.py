"""Checks of an environment: its own evidence, and that episodes do not affect each other."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from agentrl.env.base import Env, Policy
from agentrl.env.context import Episode
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.driver.resources import close_shared
from agentrl.env.gymnasium import GymnasiumEnv
from agentrl.env.play import aplay
from agentrl.env.policies import canaries_of, oracle_of
from agentrl.env.tasks import Task
from agentrl.env.testing.cancellation import cancel_everywhere
from agentrl.env.testing.episodes import (
    ChoosePolicy,
    MakeEnv,
    Moment,
    moments,
    play_signals,
    sample_tasks,
    signals_of,
)
from agentrl.types import TRAIN


def check_environment(make: MakeEnv, *, tasks: int = 4, episodes: int = 32, timeout_s: float = 300.0) -> None:
    """Run every check of this kit, then Gymnasium's `check_env`; `make` is a class, or a function without arguments.

    Raises AssertionError, also when the checks take longer than `timeout_s`. Works inside a running event loop.
    """
    from gymnasium.utils.env_checker import check_env

    if not callable(make):
        raise TypeError(f"check_environment needs a class or a function that makes environments, not {make!r}")
    _run(_check_all(make, tasks, episodes, timeout_s))
    check_env(GymnasiumEnv(make()), skip_render_check=True)


def _run(checks: Coroutine[Any, Any, None]) -> None:
    """Run on a new event loop; in a thread if this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(checks)
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, checks).result()


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
        assert _is_same(one, other), f"{_named(one)} is another task when the tasks are read again: {other!r}"


async def check_cancellation(make: MakeEnv, policy: ChoosePolicy = oracle_of) -> None:
    """Assert that an episode ends and leaves no task when it is cancelled at any await (`cancel_everywhere`)."""
    async for _ in cancel_everywhere(make, policy):
        pass


async def check_oracle(make: MakeEnv, *, tasks: int = 8, least: float = 1.0) -> None:
    """Assert that the oracle of every sampled task earns at least `least`."""
    for task in await _sampled(make, tasks):
        episode = await _played(make, task, oracle_of(make(), task))
        assert episode.reward >= least, (
            f"the oracle of {_named(task)} earns {episode.reward}, not {least}{_why(episode)}"
        )


async def check_canaries(make: MakeEnv, *, tasks: int = 8, most: float = 0.0) -> None:
    """Assert that every canary of every sampled task earns at most `most`."""
    for task in await _sampled(make, tasks):
        for name, policy in canaries_of(make(), task).items():
            episode = await _played(make, task, policy)
            assert episode.reward <= most, f"canary {name!r} of {_named(task)} earns {episode.reward}, more than {most}"
            assert not _why(episode), f"canary {name!r} of {_named(task)} is not scored{_why(episode)}"


def own_evidence(env: Env, task: Task) -> list[Policy]:
    """Return the oracle and the canaries of a task, and a policy of empty turns."""
    return [oracle_of(env, task), *canaries_of(env, task).values(), []]


async def check_concurrent(
    make: MakeEnv,
    count: int,
    policies: Callable[[Env, Task], Sequence[Policy]] = own_evidence,
    *,
    tasks: int = 8,
) -> None:
    """Assert that `count` episodes that are open at once earn what each earns alone; skips group rewards."""
    source = make()
    cases = [(task, policy) for task in await _sampled(make, tasks) for policy in policies(source, task)][:count]
    # Alone in the other order: an episode that changes the next one is seen.
    alone = [await play_signals(make(), *case) for case in reversed(cases)][::-1]
    together = [moments(make(), *cases[number % len(cases)], member=number) for number in range(count)]
    for number, episode in enumerate(await interleave(together)):
        task = cases[number % len(cases)][0]
        assert signals_of(episode) == alone[number % len(cases)], (
            f"{_named(task)} earns another reward when {count} episodes are open than alone: episodes share state"
        )
    assert len({*map(str, alone)}) > 1 or count == 1 or not any(alone), (
        f"every oracle and canary of {type(source).__name__} earns the same, and so does silence: "
        "shared state would go unnoticed; add a canary that earns less"
    )


async def check_twins(make: MakeEnv, policy: ChoosePolicy = oracle_of, *, tasks: int = 3) -> list[list[Any]]:
    """Assert that interleaved episodes of the same seed and member are equal, and that all others draw other numbers.

    Returns what the environment gave to seeds 0 and 1, two members each.
    """

    size = await EnvDriver(make()).size(TRAIN)

    async def life(seed: int, member: int) -> AsyncIterator[Any]:
        env = make()
        for index in range(tasks if size is None else min(tasks, size)):
            yield (task := await EnvDriver(env).task(TRAIN, index, seed))
            async for moment in moments(env, task, policy(env, task), seed=seed, member=member):
                yield moment

    kinds = [(seed, member) for seed in (0, 1) for member in (0, 1)]
    lives = await interleave([life(*kind) for kind in kinds * 2])
    for (seed, member), one, twin in zip(kinds, lives, lives[len(kinds) :], strict=False):
        assert one == twin, f"two episodes with seed {seed} and member {member} differ: {_difference(one, twin)}"
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
    assert not left, f"tasks were left: {left}"


async def interleave(episodes: Sequence[AsyncIterator[Any]]) -> list[list[Any]]:
    """Advance all episodes in step, one item each per round; returns the items of each."""
    received: list[list[Any]] = [[] for _ in episodes]
    running = list(range(len(episodes)))
    while running:
        items = await asyncio.gather(*(anext(episodes[number], None) for number in running))
        for number, item in zip(running, items, strict=True):
            received[number].append(item)
        running = [number for number in running if received[number][-1] is not None]
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


def _is_same(one: Task, other: Task) -> bool:
    """Return whether two tasks are equal; data without an equality of its own is compared by its pickle."""
    if one.id != other.id:
        return False
    with suppress(ValueError):  # arrays have no single truth value
        if one.data == other.data:
            return True
    return pickle.dumps(one.data) == pickle.dumps(other.data)


def _difference(one: Sequence[Any], twin: Sequence[Any]) -> str:
    pairs = ((a, b) for a, b in zip(one, twin, strict=False) if a != b)
    return next((f"{a!r} and {b!r}" for a, b in pairs), f"{len(one)} and {len(twin)} moments")

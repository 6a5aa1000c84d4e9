"""Episodes one moment at a time, and the tasks to play."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentrl.env.base import Env, Policy
from agentrl.env.context import Start, StepResult
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.play import walk
from agentrl.env.tasks import Task
from agentrl.errors import ConfigError, EnvError
from agentrl.types import HELD_OUT, TRAIN, Signal

ChoosePolicy = Callable[[Env, Task], Policy]
"""Chooses who plays the assistant in a task."""
MakeEnv = Callable[[], Env]
"""Makes an environment object; a class is one."""
SLOW_S, AT_ONCE = 0.5, 16
"""Seconds of one episode from which others are played at the same time, and how many of them."""
Case = TypeVar("Case")
Played = TypeVar("Played")


class Moment(NamedTuple):
    """What the environment returned at one moment of an episode, and then the next number of its `ctx.rng`."""

    result: Start | StepResult | tuple[Signal, ...]
    random: float


async def sample_tasks(env: Env, count: int, *, first: str = TRAIN) -> list[Task]:
    """Return `count` tasks of each split, spread evenly over it; all tasks of a smaller split.

    The split `first` is read before the other, and the tasks for training come before those held out.
    """
    check_positive(tasks=count)
    found, driver = dict[str, list[Task]](), EnvDriver(env)
    for split in sorted((TRAIN, HELD_OUT), key=lambda split: split != first):
        size = await driver.size(split)
        most = count if size is None else min(count, size)
        found[split] = [await driver.task(split, number * (size or most) // most) for number in range(most)]
    if not any(found.values()):
        raise EnvError(f"{type(env).__name__}.tasks returns no task, neither for {TRAIN!r} nor for {HELD_OUT!r}")
    return [*found[TRAIN], *found[HELD_OUT]]


async def play_each(play: Callable[[Case], Awaitable[Played]], cases: Iterable[Case]) -> list[Played]:
    """Play cases one after another, as long as each takes less than SLOW_S; at most AT_ONCE of the rest at once."""
    played, waiting, room, took_s = list[Played](), [*cases][::-1], asyncio.Semaphore(AT_ONCE), 0.0

    async def bounded(case: Case) -> Played:
        async with room:
            return await play(case)

    while waiting and took_s < SLOW_S:
        began = time.monotonic()
        played.append(await play(waiting.pop()))
        took_s = time.monotonic() - began
    rest = [asyncio.ensure_future(bounded(case)) for case in reversed(waiting)]
    try:
        return [*played, *await asyncio.gather(*rest)]
    finally:
        for each in rest:
            each.cancel()
        if rest:
            await asyncio.wait(rest)


def check_positive(**counts: int) -> None:
    """Raise ConfigError for a count below 1."""
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name} is {count}; give 1 or more")


async def moments(
    env: Env, task: Task, policy: Policy, *, seed: int = 0, member: int = 0
) -> AsyncGenerator[Moment, None]:
    """Play an episode and yield after the reset, after each turn, and after the final scoring."""
    driver = EnvDriver(env)
    try:
        async with aclosing(walk(driver, policy, task, seed=seed, member=member)) as walking:
            async for result in walking:
                yield Moment(result, env.ctx.rng.random())
    finally:
        await driver.close()


async def play_signals(env: Env, task: Task, policy: Policy, *, seed: int = 0, member: int = 0) -> dict[str, Signal]:
    """Play an episode and return its signals by name, without group rewards (`agentrl.env.play` has them)."""
    return signals_of([moment async for moment in moments(env, task, policy, seed=seed, member=member)])


def signals_of(episode: Sequence[Moment]) -> dict[str, Signal]:
    """Return the final signals of a finished episode, by name."""
    signals = episode[-1].result
    assert isinstance(signals, tuple), "the episode is not finished"
    return {signal.name: signal for signal in signals}


def values(signals: Mapping[str, Signal]) -> dict[str, float | None]:
    """Return the values of signals; None for an invalid one."""
    return {name: signal.value for name, signal in signals.items()}


def data_file(name: str) -> Path:
    """Return a file or folder below AGENTRL_DATA, for data that cannot be shipped; skips the test if it is absent."""
    import pytest

    folder = os.environ.get("AGENTRL_DATA")
    if not folder or not (path := Path(folder) / name).exists():
        pytest.skip(f"no {name} in the folder that AGENTRL_DATA names ({folder or 'not set'})")
    return path

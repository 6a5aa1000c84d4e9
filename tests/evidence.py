"""What the tests of every environment share: its episodes in stages, many open at once, as twins, and cut short."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from gc import get_referents
from inspect import isasyncgen
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentrl.env import Env, EnvDriver, Policy, Signal, Start, StepResult, StopReason, Task, close_shared

DATA = Path(os.environ.get("AGENTRL_DATA") or Path(__file__).parents[2] / "shared" / "data")
MOST_S = 30.0
Chooses = Callable[[Env, Task], Policy]
Makes = Callable[[], Env]
Place = tuple[int, tuple[str, ...]]


class Stage(NamedTuple):
    """What an environment said at one stage of an episode, and the next number of the episode's dice."""

    said: Start | StepResult | tuple[Signal, ...]
    dice: float


def real(name: str) -> Path:
    """A file or folder of real data, which is not part of the project; without it the test is skipped."""
    if not (DATA / name).exists():
        pytest.skip(f"no {name} in {DATA}: AGENTRL_DATA names another folder")
    return DATA / name


async def sample(env: Env, count: int) -> list[Task]:
    """As many tasks of each split, from all over it, or all where there are fewer."""
    found, driver = [], EnvDriver(env)
    for split in ("train", "test"):
        size = await driver.size(split)
        most = count if size is None else min(count, size)
        found += [await driver.task(split, number * (size or most) // most) for number in range(most)]
    return found


async def stages(
    env: Env, task: Task, policy: Policy, *, seed: int = 0, member: int = 0
) -> AsyncGenerator[Stage, None]:
    """An episode one stage at a time: the reset, each turn, the signals."""
    driver = EnvDriver(env)
    try:
        yield Stage(await driver.reset(task, seed=seed, member=member), env.ctx.rng.random())
        for turn in range(driver.max_turns):
            result = await driver.step(policy(env.ctx.messages) if callable(policy) else policy[turn])
            yield Stage(result, env.ctx.rng.random())
            if result.done:
                break
        yield Stage(await driver.finish(StopReason.ENV_DONE), env.ctx.rng.random())
    finally:
        await driver.close()


async def play(env: Env, task: Task, policy: Policy, *, seed: int = 0, member: int = 0) -> dict[str, Signal]:
    """The signals of an episode, by name."""
    return signals_of([stage async for stage in stages(env, task, policy, seed=seed, member=member)])


def signals_of(episode: Sequence[Stage]) -> dict[str, Signal]:
    """The signals of an episode that came to its end, by name."""
    said = episode[-1].said
    assert isinstance(said, tuple)
    return {signal.name: signal for signal in said}


def values(signals: Mapping[str, Signal]) -> dict[str, float | None]:
    """The values alone."""
    return {name: signal.value for name, signal in signals.items()}


async def together(episodes: Sequence[AsyncIterator[Any]]) -> list[list[Any]]:
    """All episodes at once, each stage of all before the next of any; what each came to."""
    heard: list[list[Any]] = [[] for _ in episodes]
    going = list(range(len(episodes)))
    while going:
        said = await asyncio.gather(*(anext(episodes[number], None) for number in going))
        for number, stage in zip(going, said, strict=True):
            heard[number].append(stage)
        going = [number for number in going if heard[number][-1] is not None]
    return [episode[:-1] for episode in heard]


def oracle(env: Env, task: Task) -> Policy:
    """What solves the task."""
    return env.oracle(task)


def evidence(env: Env, task: Task) -> list[Policy]:
    """What solves the task, and what must not."""
    return [env.oracle(task), *env.canaries(task).values()]


async def check_many(
    make: Makes, count: int, policies: Callable[[Env, Task], Sequence[Policy]] = evidence, tasks: int = 8
) -> None:
    """`count` episodes that are all open at once are worth what each is worth alone."""
    source = make()
    cases = [(task, policy) for task in await sample(source, tasks) for policy in policies(source, task)][:count]
    alone = [await play(make(), *case) for case in reversed(cases)][::-1]  # whoever came before left nothing to find
    crowd = [stages(make(), *cases[number % len(cases)], member=number) for number in range(count)]
    for number, episode in enumerate(await together(crowd)):
        assert signals_of(episode) == alone[number % len(cases)], cases[number % len(cases)]
    assert len({*map(str, alone)}) > 1 or count == 1


async def check_twins(make: Makes, policy: Chooses = oracle, tasks: int = 3) -> list[list[Any]]:
    """Twins that take turns see and draw the same; gives what those of seeds 0 and 1, of two members each, saw.

    Every other episode draws other numbers.
    """

    async def life(seed: int, member: int) -> AsyncIterator[Any]:
        env = make()
        for index in range(tasks):
            yield (task := await EnvDriver(env).task("train", index, seed))
            async for stage in stages(env, task, policy(env, task), seed=seed, member=member):
                yield stage

    kinds = [(seed, member) for seed in (0, 1) for member in (0, 1)]
    lives = await together([life(*kind) for kind in kinds * 2])
    for kind, one, twin in zip(kinds, lives, lives[len(kinds) :], strict=False):
        assert one == twin, kind
    dice = [stage.dice for life in lives[: len(kinds)] for stage in life if isinstance(stage, Stage)]
    assert len({*dice}) == len(dice)
    return [[getattr(stage, "said", stage) for stage in life] for life in lives[: len(kinds)]]


class Cut(NamedTuple):
    """Where an episode was cancelled: how many stages were over, and the calls that waited, in whichever task."""

    env: Env
    over: int
    calls: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """The names of the calls."""
        return {call.partition(":")[0] for call in self.calls}

    @property
    def is_between(self) -> bool:
        """Whether the environment had said its part, and the model was to speak."""
        return models_turn.__name__ in self.names


def waits(cuts: Sequence[Cut]) -> set[tuple[int, str]]:
    """The names of all calls that were waiting when an episode was cancelled, each after so many stages."""
    return {(cut.over, name) for cut in cuts for name in cut.names}


def pauses(cuts: Sequence[Cut]) -> list[int]:
    """After how many stages an episode was cancelled while the model was to speak."""
    return [cut.over for cut in cuts if cut.is_between]


async def models_turn() -> None:
    """Something else runs."""
    await asyncio.sleep(0)


async def cut_short(make: Makes, policy: Chooses = oracle, *, is_loaded: bool = False) -> AsyncIterator[Cut]:
    """Cancels episodes, each at the first place where it waits and none was cancelled before, until one gets through.

    After each, what is shared is closed; then no task is left. With `is_loaded` what is shared is made before.
    """
    places: list[Place] = []
    is_cut = True
    while is_cut:
        env = make()
        if is_loaded:
            await EnvDriver(env).task("train", 0)
        if is_cut := await is_cancelled(env, policy, places):
            yield Cut(env, *places[-1])
        await close_shared()
        assert asyncio.all_tasks() == {asyncio.current_task()}, places[-1:]


async def is_cancelled(env: Env, policy: Chooses, places: list[Place]) -> bool:
    """Whether an episode came to a place that is not among these: it is cancelled there, and the place added."""
    loop, over, known = asyncio.get_running_loop(), 0, len(places)

    async def episode() -> None:
        nonlocal over
        task = await EnvDriver(env).task("train", 0)
        async with aclosing(stages(env, task, policy(env, task))) as going:
            async for _ in going:
                over += 1
                await models_turn()

    def note(calls: tuple[str, ...]) -> None:
        if len(places) == known and not playing.done() and (over, calls) not in places:
            places.append((over, calls))
            playing.cancel()

    loop.set_task_factory(lambda loop, work, **options: asyncio.Task(Watched(work, note), loop=loop, **options))
    try:
        playing = loop.create_task(episode())
        await asyncio.wait({playing}, timeout=MOST_S)
    finally:
        loop.set_task_factory(None)
    assert playing.done(), places[known:]
    if len(places) == known:
        playing.result()
    assert playing.cancelled() == (len(places) > known), places[known:]
    return playing.cancelled()


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that tells of each place where it waits."""

    def __init__(self, work: Any, note: Callable[[tuple[str, ...]], None]) -> None:
        self.work, self.note = work, note

    def send(self, value: Any) -> Any:
        return self._noted(self.work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._noted(self.work.throw(*error))

    def close(self) -> None:
        self.work.close()

    def __await__(self) -> Iterator[Any]:
        return (yield from self.work.__await__())

    def _noted(self, waited_for: Any) -> Any:
        self.note(tuple(calls(self.work)))
        return waited_for


def calls(waiting: Any) -> Iterator[str]:
    """The calls that a suspended coroutine is in, the outermost first."""
    while waiting is not None:
        for prefix in ("cr", "ag"):
            if frame := getattr(waiting, f"{prefix}_frame", None):
                yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                waiting = getattr(waiting, f"{prefix}_await")
                break
        else:  # what `anext` gives does not tell its generator
            waiting = next(filter(isasyncgen, get_referents(waiting)), None)

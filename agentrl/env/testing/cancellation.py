"""Cancels an episode at every await."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from gc import get_referents
from inspect import isasyncgen
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from agentrl.env.base import Env
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.resources import close_shared
from agentrl.env.policies import player_of
from agentrl.env.testing.episodes import ChoosePolicy, MakeEnv, moments
from agentrl.errors import AgentRLError
from agentrl.plugins.tracebacks import describe_error, is_foreign
from agentrl.types import TRAIN

MOST_S = 30.0
"""Time for an episode to end after its cancellation, besides loading."""
Wait = tuple[int, tuple[str, ...]]
"""Moments that have passed, and the suspended calls, the outermost first."""


@dataclass
class Seen:
    """The awaits at which an episode was cancelled. After the time `all_until`, one of each line is enough."""

    all_until: float
    waits: list[Wait] = field(default_factory=list)

    def __contains__(self, wait: Wait) -> bool:
        return wait in self.waits or (
            time.monotonic() > self.all_until and wait[1] in [calls for _, calls in self.waits]
        )


class Cancellation(NamedTuple):
    """Where an episode was cancelled: after `passed` moments, while `calls` waited (in whichever task)."""

    env: Env
    passed: int
    calls: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """The names of the calls, without line numbers."""
        return {call.partition(":")[0] for call in self.calls}

    @property
    def is_models_turn(self) -> bool:
        """Whether the environment was waiting for the model."""
        return _models_turn.__name__ in self.names


def waits(cancellations: Sequence[Cancellation]) -> set[tuple[int, str]]:
    """(moments passed, name) of every call that was waiting when an episode was cancelled."""
    return {(each.passed, name) for each in cancellations for name in each.names}


def model_turns(cancellations: Sequence[Cancellation]) -> list[int]:
    """Moments passed at each cancellation during the model's turn."""
    return [each.passed for each in cancellations if each.is_models_turn]


async def _models_turn() -> None:
    await asyncio.sleep(0)


async def cancel_everywhere(
    make: MakeEnv, policy: ChoosePolicy = player_of, *, is_loaded: bool = False, each_turn_s: float = math.inf
) -> AsyncIterator[Cancellation]:
    """Play episodes and cancel each at the first await at which none was cancelled before, until one finishes.

    Yields after each cancellation, when the episode has been torn down. Then closes what is shared and asserts that no
    task is left. With `is_loaded`, shared resources are made before the episode begins. After `each_turn_s` seconds,
    an await counts as seen that was seen in another turn.
    """
    seen = Seen(time.monotonic() + each_turn_s)
    places: list[str] = []
    before = asyncio.all_tasks()
    most_s = MOST_S + 2 * await _load_s(make())
    is_cancelled = True
    while is_cancelled:
        env = make()
        if is_loaded:
            await EnvDriver(env).task(TRAIN, 0)
        if is_cancelled := await _is_cancelled(env, policy, seen, places, most_s):
            yield Cancellation(env, *seen.waits[-1])
        await close_shared()
        left = asyncio.all_tasks() - before
        assert not left, f"tasks were left after a cancellation near {places[-1:]}: {described(left)}"


async def _load_s(env: Env) -> float:
    """Return the seconds in which the tasks are loaded and what is shared is made."""
    began = time.monotonic()
    await EnvDriver(env).task(TRAIN, 0)
    await close_shared()
    return time.monotonic() - began


async def _is_cancelled(env: Env, policy: ChoosePolicy, seen: Seen, places: list[str], most_s: float) -> bool:
    """Play an episode and cancel it at the first await that is not in `seen`; adds it, and its place to `places`."""
    loop, passed, known = asyncio.get_running_loop(), 0, len(seen.waits)

    async def episode() -> None:
        nonlocal passed
        task = await EnvDriver(env).task(TRAIN, 0)
        async with aclosing(moments(env, task, policy(env, task))) as playing:
            async for _ in playing:
                passed += 1
                await _models_turn()

    def note(calls: tuple[str, ...]) -> None:
        if len(seen.waits) == known and not running.done() and (passed, calls) not in seen:
            seen.waits.append((passed, calls))
            running.cancel()
        if len(seen.waits) > known == len(places) and (line := _authors_line(filter(_is_watched, asyncio.all_tasks()))):
            places.append(line)  # the author's code may begin to wait after the episode waits for it

    loop.set_task_factory(lambda loop, work, **options: asyncio.Task(_Watched(work, note), loop=loop, **options))
    try:
        running = loop.create_task(episode())
        await asyncio.wait({running}, timeout=most_s)
    finally:
        loop.set_task_factory(None)
    if len(seen.waits) > known == len(places):
        places.append(" > ".join(seen.waits[known][1]))
    place = f"near {places[-1]}, after {passed} moments" if places else "nowhere"
    assert running.done(), f"an episode outlived its cancellation {place} by {most_s:.0f} s"
    if len(seen.waits) == known:
        running.result()
    if len(seen.waits) > known and not running.cancelled():
        raised = running.exception()
        ending = f"ended with {described_error(raised)}" if raised else "swallowed its cancellation"
        raise AssertionError(f"an episode cancelled {place} {ending}") from raised
    return running.cancelled()


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine that reports each await that suspends it."""

    def __init__(self, work: Any, note: Callable[[tuple[str, ...]], None]) -> None:
        self.work, self.note = work, note

    def send(self, value: Any) -> Any:
        return self._noted(self.work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._noted(self.work.throw(*error))

    def close(self) -> None:
        self.work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self.work.__await__())

    def _noted(self, waited_for: Any) -> Any:
        self.note(tuple(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in _suspended(self.work)))
        return waited_for


def described(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return where tasks wait, each by the author's innermost line."""
    return ", ".join(sorted(_authors_line([task]) or repr(task) for task in tasks))


def described_error(error: BaseException) -> str:
    """Return the text of an error: an error of agentrl says where it comes from."""
    return f"{type(error).__name__}: {error}" if isinstance(error, AgentRLError) else describe_error(error)


def _is_watched(task: asyncio.Task[Any]) -> bool:
    return isinstance(task.get_coro(), _Watched)


def _authors_line(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return the author's innermost line that waits in these tasks; "" if there is none."""
    coroutines = [getattr(task.get_coro(), "work", task.get_coro()) for task in tasks]
    frames = [frame for work in coroutines for frame in _suspended(work) if is_foreign(frame.f_code.co_filename)]
    codes = [(Path(frame.f_code.co_filename).name, frame.f_lineno, frame.f_code.co_qualname) for frame in frames[-1:]]
    return "".join(f"{file}:{line} ({name})" for file, line, name in codes)


def _suspended(waiting: Any) -> Iterator[FrameType]:
    """Yield the frames of the calls that a suspended coroutine is in, the outermost first."""
    while waiting is not None:
        for prefix in ("cr", "ag"):
            if frame := getattr(waiting, f"{prefix}_frame", None):
                yield frame
                waiting = getattr(waiting, f"{prefix}_await")
                break
        else:  # the object that `anext` returns does not name its generator
            waiting = next(filter(isasyncgen, get_referents(waiting)), None)

"""Runs checks one after another, each under a deadline that holds even if the environment blocks the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

from agentrl.checking.attempts import AT_A_TASK, IN_TURN_S, SETTINGS, ordinary
from agentrl.checking.check import (
    Check,
    FailedError,
    Level,
    Result,
    SkippedError,
    Status,
    Subject,
    UncheckedError,
    unchecked,
)
from agentrl.env.driver.resources import close_shared
from agentrl.env.testing.episodes import SLOW_S, sample_tasks
from agentrl.errors import AgentRLError, Caught, ExitedError, acatch
from agentrl.plugins.blocking import authors_line
from agentrl.plugins.tracebacks import describe_error

GRACE_S = 5.0
"""Time for a check to end after its deadline."""
LOAD_S = 120.0
"""Time for an environment to load once."""
TOO_LONG = f"its tasks take longer than {LOAD_S:.0f} s to load, and checks load them often: check it with fewer tasks"
PLAY_S = SETTINGS.episode_timeout_s + LOAD_S
"""Time for a first ordinary episode, with loading."""
LOADS = 10
"""How often a check may load the tasks and make what is shared, on top of its own time."""
EPISODES, IN_TURN = {Level.TRUTH: 64, Level.BEHAVIOUR: 30}, 2
"""How many slow episodes a level takes as long as, and how many of its checks play others one after another."""


def run_checks(
    subject: Subject,
    checks: Iterable[Check],
    started: Callable[[float], None] = lambda _: None,
    estimated: Callable[[str], None] = lambda _: None,
) -> Iterator[Result]:
    """Run checks and yield their results.

    `started` is called before each, with the most seconds it takes; `estimated` if episodes are slow.
    After an error in a check of what all others need, they are not checked; a fault that it names does not end them.
    Nor are those checked that need an ordinary episode, if none ends well.
    """
    room, checks, load_s, broken, fault = _Room(), list(checks), None, None, None
    for check in checks:
        if broken:
            yield unchecked(check, broken)
            continue
        if load_s is None:
            loaded = room.run(_loads(subject), LOAD_S)
            load_s = loaded.value or 0.0  # a load that fails counts as 0
            if isinstance(loaded.error, TimeoutError):
                yield Result(check, Status.UNCHECKED, TOO_LONG)
                broken = check
                continue
        limit_s = check.timeout_s + LOADS * load_s
        is_first = check.needs_episode and fault is None
        started(limit_s + GRACE_S + (PLAY_S + GRACE_S) * is_first)
        if is_first:
            played = room.run(_plays(subject), PLAY_S)
            fault = _judged(played)[1] if played.error else ""
            if not fault and played.value > SLOW_S:
                estimated(_estimate(played.value, {other.level for other in checks}))
        if check.needs_episode and fault:
            yield Result(check, Status.UNCHECKED, f"not checked, because no ordinary episode ends well: {fault}")
            continue
        began, outcome = time.monotonic(), room.run(_asked(check, subject, limit_s), limit_s)
        status, text = _judged(outcome)
        if check.is_basis and not status.is_fine and not isinstance(outcome.error, FailedError):
            broken = check
        remedy = check.remedy_for(subject) if status is Status.FAILED else ""
        yield Result(check, status, text, time.monotonic() - began, remedy)
    room.run(close_shared(), GRACE_S)


def _estimate(episode_s: float, levels: Collection[Level]) -> str:
    """Return about how long the levels take that consist of episodes."""
    timed = [level for level in EPISODES if level in levels]
    in_turn_s = IN_TURN * max(IN_TURN_S, 2 * AT_A_TASK * episode_s)
    minutes = sum(EPISODES[level] * episode_s + in_turn_s for level in timed) / 60
    return f"an episode takes about {episode_s:.1f} s: about {max(1.0, minutes):.0f} min for {' and '.join(timed)}"


async def _loads(subject: Subject) -> float:
    began = time.monotonic()
    async with asyncio.timeout(LOAD_S):
        await sample_tasks(subject.make(), 1)
    await close_shared()
    return time.monotonic() - began


async def _plays(subject: Subject) -> float:
    try:
        return await ordinary(subject)
    finally:
        await close_shared()


async def _asked(check: Check, subject: Subject, limit_s: float) -> str:
    try:
        async with asyncio.timeout(limit_s) as deadline:
            return await check.ask(subject)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise UncheckedError(f"not finished within {limit_s:.0f} s: the machine or the environment is slow") from error


def _judged(outcome: Caught) -> tuple[Status, str]:
    """Return the status and the text of what a check returned or raised; any other error is a fault."""
    if outcome.error is None:
        return Status.PASSED, outcome.value
    if isinstance(outcome.error, SkippedError):
        return Status.SKIPPED, str(outcome.error)
    if isinstance(outcome.error, UncheckedError):
        return Status.UNCHECKED, str(outcome.error)
    is_described = isinstance(outcome.error, AgentRLError | AssertionError) and str(outcome.error)
    return Status.FAILED, str(outcome.error) if is_described else describe_error(outcome.error)


async def _outcome(work: Coroutine[Any, Any, Any]) -> Caught:
    """Await and catch; also a CancelledError, which the environment has raised: nothing cancels a check."""
    try:
        return await acatch(work)
    except asyncio.CancelledError as error:
        return Caught(error=ExitedError(error))


class _BlockedError(AssertionError):
    """Code of the environment holds the event loop; the message has its line."""


class _Room:
    """An event loop in a thread of its own, in place of which a new one is made if something blocks it."""

    def __init__(self) -> None:
        self._home = Path.cwd()
        self._start()

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="agentrl-check", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Caught:
        """Return the outcome of a coroutine, a _BlockedError if it did not end in time. The working folder stays."""
        running = asyncio.run_coroutine_threadsafe(_outcome(work), self._loop)
        try:
            return running.result(timeout_s + GRACE_S)
        except concurrent.futures.TimeoutError:
            line = authors_line(self._thread)
            self._start()
            text = (
                f"it took longer than {timeout_s:.0f} s, and its deadline did not end it{line}: what blocks belongs in "
                "a plain def, which has a thread of its own, or in asyncio.to_thread"
            )
            return Caught(error=_BlockedError(text))
        finally:
            os.chdir(self._home)

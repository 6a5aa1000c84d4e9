"""Runs checks one after another, each under a deadline that holds even if the environment blocks the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from threading import Thread
from typing import Any

from agentrl.checking.check import Check, Result, SkippedError, Status, Subject
from agentrl.env.driver.resources import close_shared
from agentrl.env.testing.blocking import authors_line
from agentrl.errors import AgentRLError, Caught, acatch
from agentrl.plugins.tracebacks import describe_error

GRACE_S = 5.0
"""Time for a check to end after its deadline."""


def run_checks(
    subject: Subject, checks: Iterable[Check], started: Callable[[Check], None] = lambda _: None
) -> Iterator[Result]:
    """Run checks and yield their results; `started` is called before each."""
    room = _Room()
    for check in checks:
        started(check)
        began = time.monotonic()
        outcome = room.run(_asked(check, subject), check.timeout_s)
        if outcome is None:
            blocked = f"it took longer than {check.timeout_s:g} s, and its deadline did not end it{room.line()}"
            room, status, text = _Room(), Status.FAILED, blocked
        else:
            status, text = _judged(outcome)
        yield Result(check, status, text, time.monotonic() - began)
    room.run(close_shared(), GRACE_S)


async def _asked(check: Check, subject: Subject) -> str:
    try:
        async with asyncio.timeout(check.timeout_s):
            return await check.ask(subject)
    except TimeoutError as error:
        raise AssertionError(f"it took longer than {check.timeout_s:g} s") from error


def _judged(outcome: Caught) -> tuple[Status, str]:
    """Return the status and the text of what a check returned or raised; whatever it raised is a fault."""
    if outcome.error is None:
        return Status.PASSED, outcome.value
    if isinstance(outcome.error, SkippedError):
        return Status.SKIPPED, str(outcome.error)
    is_described = isinstance(outcome.error, AgentRLError | AssertionError) and str(outcome.error)
    return Status.FAILED, str(outcome.error) if is_described else describe_error(outcome.error)


class _Room:
    """An event loop in a thread of its own, which is abandoned if a check blocks it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="agentrl-check", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Caught | None:
        """Return the outcome of a coroutine; None if it did not end in time."""
        running = asyncio.run_coroutine_threadsafe(acatch(work), self._loop)
        try:
            return running.result(timeout_s + GRACE_S)
        except concurrent.futures.TimeoutError:
            return None

    def line(self) -> str:
        """Return the author's line that blocks the loop."""
        return authors_line(self._thread)

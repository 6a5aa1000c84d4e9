"""The one place where an author's code is called: async, in a thread or inline, and always under a deadline."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from agentrl.env.driver.threads import THREADS
from agentrl.env.tracebacks import ExitedError, describe
from agentrl.errors import DeadlineError, EnvError, Fault

GRACE_S = 1.0


class AuthorDeadlineError(DeadlineError):
    """An author's method ran past its limit."""

    fault: Fault = "program"


class Outcome(AbstractContextManager["Outcome"]):
    """What a call came to: a `value`, or the `error` it raised (anything but a cancellation or an interrupt)."""

    def __init__(self, error: Exception | None = None) -> None:
        self.value: Any = None
        self.error = error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None or isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)):
            return False
        self.error = error if isinstance(error, Exception) else ExitedError(error)
        return True

    def unwrap(self, what: str) -> Any:
        """The value, or EnvError saying where `what` failed. Errors that name their own fault fly as they are."""
        if self.error is None:
            return self.value
        if getattr(self.error, "fault", None) in ("program", "infra"):
            raise self.error
        raise EnvError(f"{what} raised {describe(self.error)}") from self.error


@dataclass(frozen=True, slots=True)
class AuthorCode:
    """Calls the methods of one environment. Plain ones run in a thread, or inline where `blocking` is False."""

    owner: str
    blocking: bool = True

    async def attempt(self, function: Callable[..., Any], *args: Any, timeout_s: float, name: str = "") -> Outcome:
        """Call `function(*args)`, plain or async; what it raised, or its deadline, is in the outcome."""
        what = f"{self.owner}.{name or function.__name__}"
        if inspect.iscoroutinefunction(function):
            return await within(function(*args), timeout_s, what)
        outcome = await in_thread(function, args, timeout_s, what) if self.blocking else caught(function, args)
        if inspect.isawaitable(outcome.value):
            return await within(outcome.value, timeout_s, what)
        return outcome

    async def call(self, function: Callable[..., Any], *args: Any, timeout_s: float, name: str = "") -> Any:
        """Call `function(*args)`, plain or async; raises EnvError when it raised."""
        outcome = await self.attempt(function, *args, timeout_s=timeout_s, name=name)
        return outcome.unwrap(f"{self.owner}.{name or function.__name__}")


def caught(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Run a plain function here and now."""
    with Outcome() as outcome:
        outcome.value = function(*args)
    return outcome


def survived(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """The same for code that the command itself runs: `os._exit` in it is an error too, or it would end without a word.

    For the main thread alone; what the code forks may exit as it likes.
    """
    real, ours = os._exit, os.getpid()

    def exits(status: int) -> NoReturn:
        if os.getpid() != ours:
            real(status)
        raise SystemExit(status)

    os._exit = exits
    try:
        return caught(function, args)
    finally:
        os._exit = real


async def in_thread(function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float, what: str) -> Outcome:
    """Run a plain function in a thread; past the deadline the thread is given up."""
    try:
        return await THREADS.run(lambda: caught(function, args), timeout_s, what)  # type: ignore[no-any-return]
    except DeadlineError as error:
        return Outcome(error=AuthorDeadlineError(str(error)))


async def within(awaitable: Awaitable[Any], timeout_s: float, what: str) -> Outcome:
    """Await it as a task of its own, so that code which ignores its cancellation cannot hold the episode."""
    task = asyncio.ensure_future(caught_async(awaitable))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if task.cancelled():
            return Outcome(error=EnvError(f"{what} cancelled itself"))
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
    return Outcome(error=AuthorDeadlineError(f"{what} ran longer than {timeout_s:g} s"))


async def caught_async(awaitable: Awaitable[Any]) -> Outcome:
    """Await and catch, inside the task: a SystemExit that left a task would stop the whole loop."""
    with Outcome() as outcome:
        outcome.value = await awaitable
    return outcome

"""The one place that calls an author's code: async, in a thread or inline, and always under a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agentrl.env.base import Env
from agentrl.env.driver.threads import THREADS, Threads
from agentrl.errors import Caught, DeadlineError, EnvError, ExitedError, Fault, acatch, catch
from agentrl.plugins.tracebacks import describe_error

GRACE_S = 1.0


class AuthorDeadlineError(DeadlineError):
    """An author's method ran past its limit."""

    fault: Fault = "program"


def unwrap(outcome: Caught, what: str) -> Any:
    """Return the value, or raise EnvError with the line where `what` failed; errors with a `fault` are raised as is."""
    if outcome.error is None:
        return outcome.value
    if getattr(outcome.error, "fault", None) in ("program", "infra"):
        raise outcome.error
    raise EnvError(f"{what} raised {describe_error(outcome.error)}") from outcome.error


@dataclass(frozen=True, slots=True)
class UserCode:
    """Calls the methods of one environment. Plain ones run in one of `threads`, or inline if `blocking` is False."""

    owner: str
    blocking: bool = True
    threads: Threads = THREADS

    @classmethod
    def of(cls, env: Env, threads: Threads = THREADS) -> UserCode:
        """Return the caller of this object's methods."""
        return cls(type(env).__name__, env.blocking, threads)

    async def attempt(self, function: Callable[..., Any], *args: Any, timeout_s: float, name: str = "") -> Caught:
        """Call `function(*args)`, plain or async. Returns what it raised, or a timeout, as the error of the outcome."""
        what = f"{self.owner}.{name or function.__name__}"
        if inspect.iscoroutinefunction(function):
            return await within(function(*args), timeout_s, what)
        outcome = await self._in_thread(function, args, timeout_s, what) if self.blocking else catch(function, *args)
        if inspect.isawaitable(outcome.value):
            return await within(outcome.value, timeout_s, what)
        return outcome

    async def call(self, function: Callable[..., Any], *args: Any, timeout_s: float, name: str = "") -> Any:
        """Call `function(*args)`, plain or async; raises EnvError if it fails."""
        outcome = await self.attempt(function, *args, timeout_s=timeout_s, name=name)
        return unwrap(outcome, f"{self.owner}.{name or function.__name__}")

    async def _in_thread(
        self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float, what: str
    ) -> Caught:
        """Run a plain function in a thread, which is abandoned at the deadline."""

        def run() -> Caught:
            try:
                return catch(function, *args)
            except (asyncio.CancelledError, GeneratorExit) as error:
                return Caught(error=ExitedError(error))  # the author's own: neither reaches a thread from outside

        try:
            return await self.threads.run(run, timeout_s, what)  # type: ignore[no-any-return]
        except DeadlineError as error:
            return Caught(error=AuthorDeadlineError(str(error)))


async def within(awaitable: Awaitable[Any], timeout_s: float, what: str) -> Caught:
    """Await in a task of its own, so that code that ignores its cancellation cannot block the episode."""
    task = asyncio.ensure_future(acatch(awaitable))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if task.cancelled():
            return Caught(error=EnvError(f"{what} cancelled itself"))
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
    return Caught(error=AuthorDeadlineError(f"{what} ran longer than {timeout_s:g} s"))

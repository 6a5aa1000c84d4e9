"""What all episodes of one environment share inside a process: the values of `@shared` and the tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from agentrl.env.base import Env
from agentrl.env.driver.user_code import UserCode
from agentrl.env.sharing import Shared, shared_of
from agentrl.env.tasks import IndexedTasks
from agentrl.errors import Caught, EnvError
from agentrl.plugins.tracebacks import describe_error

Closer = Callable[[Any], Callable[..., Any] | None]
CLOSE_TIMEOUT_S = 10.0


class Resources:
    """The shared values and tasks of one (env class, config) on one event loop."""

    def __init__(self, env: Env) -> None:
        self.values: dict[str, Any] = {}
        self._home = env
        self._code = UserCode.of(env)
        self._tasks: dict[tuple[str, int], asyncio.Task[IndexedTasks]] = {}
        self._making: asyncio.Task[None] | None = None
        self._closers: list[Callable[[], Awaitable[Caught]]] = []

    async def ready(self) -> None:
        """Wait until every shared resource is made. A failure reaches every waiter; the next caller tries again."""
        if self._making is None or failed(self._making):
            self._making = asyncio.ensure_future(self._make_all())
        await asyncio.shield(self._making)

    async def tasks(self, split: str, seed: int) -> IndexedTasks:
        """Return the tasks of a split, loaded once."""
        await self.ready()
        key = (split, seed)
        if key not in self._tasks or failed(self._tasks[key]):
            self._tasks[key] = asyncio.ensure_future(self.load(split, seed))
        return await asyncio.shield(self._tasks[key])

    async def close(self) -> list[str]:
        """Close everything that was made, newest first; returns the failures. Idempotent."""
        unfinished = {task for task in (self._making, *self._tasks.values()) if task and not task.done()}
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=CLOSE_TIMEOUT_S)
        self.values.clear()
        outcomes = [await close() for close in reversed(self._closers)]
        self._closers.clear()
        return [describe_error(outcome.error) for outcome in outcomes if outcome.error is not None]

    async def load(self, split: str, seed: int) -> IndexedTasks:
        """Read a split, with an object of its own: its tasks do not depend on what was read before."""
        limit, env = self._home.limits.load_timeout_s, type(self._home)(self._home.config)
        vars(env).update(self.values)
        source = await self._code.call(env.tasks, split, timeout_s=limit)
        view = partial(IndexedTasks, source, split, seed)
        return await self._code.call(view, timeout_s=limit, name="tasks")  # type: ignore[no-any-return]

    async def _make_all(self) -> None:
        for name, item in shared_of(type(self._home)).items():
            if name not in self.values:
                self.values[name] = vars(self._home)[name] = await self._make(item)

    async def _make(self, item: Shared[Any]) -> Any:
        name = item.make.__name__

        async def call(function: Callable[..., Any], *args: Any, closer: Closer) -> Any:
            kept = self._kept(name, function, closer)
            return await self._code.call(kept, *args, timeout_s=self._home.limits.load_timeout_s, name=name)

        made = await call(item.make, self._home, closer=own_close)
        if is_lock(made):
            return made
        if isinstance(made, AbstractAsyncContextManager):
            return await call(made.__aenter__, closer=lambda _: partial(made.__aexit__, None, None, None))
        if isinstance(made, AbstractContextManager):
            return await call(made.__enter__, closer=lambda _: partial(made.__exit__, None, None, None))
        return made

    def _kept(self, name: str, function: Callable[..., Any], closer: Closer) -> Callable[..., Any]:
        """Return `function`, which keeps how to close its value before a cancellation could lose it."""

        def keep(value: Any) -> Any:
            if close := closer(value):
                self._closers.append(partial(self._code.attempt, close, timeout_s=CLOSE_TIMEOUT_S, name=name))
            return value

        async def awaited(value: Awaitable[Any]) -> Any:
            return keep(await value)

        async def kept(*args: Any) -> Any:
            return keep(await function(*args))

        def plainly_kept(*args: Any) -> Any:
            value = function(*args)
            return awaited(value) if inspect.isawaitable(value) else keep(value)

        return kept if inspect.iscoroutinefunction(function) else plainly_kept


def own_close(value: Any) -> Callable[[], Any] | None:
    """Return the `aclose` or `close` of a value; None for a context manager, which is left instead."""
    if isinstance(value, AbstractAsyncContextManager | AbstractContextManager):
        return None
    close = getattr(value, "aclose", None) or getattr(value, "close", None)
    return close if callable(close) else None


def is_lock(value: Any) -> bool:
    """True for a lock or semaphore: it can be released without arguments, unlike a pool, and entering would hold it."""
    acquire, release = getattr(value, "acquire", None), getattr(value, "release", None)
    if not (callable(acquire) and callable(release)):
        return False
    try:
        inspect.signature(release).bind()
    except TypeError:
        return False
    except ValueError:  # a built-in method without a signature
        return True
    return True


def failed(task: asyncio.Task[Any]) -> bool:
    """True when the task ended without a result."""
    return task.done() and (task.cancelled() or task.exception() is not None)


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[type, str], Resources]] = WeakKeyDictionary()


def resources_of(env: Env) -> Resources:
    """Return the resources of the environment's class and config on the running loop: one object for all episodes."""
    held = _BY_LOOP.setdefault(asyncio.get_running_loop(), {})
    key = (type(env), env.config.model_dump_json())
    if key not in held:
        held[key] = Resources(type(env)(env.config))
    return held[key]


async def close_shared() -> None:
    """Close every shared resource made on the running loop; a worker calls this once, when it ends.

    All are closed, each within its deadline, before EnvError lists the failures.
    """
    held = _BY_LOOP.pop(asyncio.get_running_loop(), {}).values()
    failures = [failure for resources in held for failure in await resources.close()]
    if failures:
        raise EnvError(f"closing shared resources: {'; '.join(failures)}")

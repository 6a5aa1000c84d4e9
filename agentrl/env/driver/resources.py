"""What the episodes of one environment share inside a process: `@shared` resources and the tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

from agentrl.env.tasks import IndexedTasks
from agentrl.env.tracebacks import describe_error
from agentrl.errors import Caught, EnvError

if TYPE_CHECKING:
    from agentrl.env.base import Env

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


class Shared(Generic[T]):
    """A resource of an environment class; reading it from an env gives the value of this process."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make
        self.name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, env: Env | None, owner: type) -> T:
        if env is None:
            return self  # type: ignore[return-value]
        values = env.resources.values if env.resources else {}
        if self.name not in values:
            raise EnvError(f"@shared {owner.__name__}.{self.name} is not made yet: it exists once an episode begins")
        return values[self.name]  # type: ignore[no-any-return]


@overload
def shared(make: Callable[[Any], AbstractAsyncContextManager[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], AbstractContextManager[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], Awaitable[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], T]) -> Shared[T]: ...
def shared(make: Callable[[Any], Any]) -> Shared[Any]:
    """Make this once per process and config, and close it with the process; `self.<name>` reads it.

    The method (plain or async) sees `self.config`. It returns a context manager of either kind, which is entered and
    left, or a value; a value's `aclose()` or `close()` is called at the end.
    """
    return Shared(make)


class Resources:
    """The shared values and tasks of one (env class, config) on one event loop."""

    def __init__(self, env_class: type[Env], config: Any) -> None:
        self.values: dict[str, Any] = {}
        self._home = env_class(config)
        self._home.resources = self
        self._tasks: dict[tuple[str, int], asyncio.Task[IndexedTasks]] = {}
        self._making: asyncio.Task[None] | None = None
        self._closers: list[Callable[[], Awaitable[Caught]]] = []

    async def ready(self) -> None:
        """Wait until every shared resource is made; all who wait hear of a failure, and the next caller tries again."""
        if self._making is None or failed(self._making):
            self._making = asyncio.ensure_future(self._make_all())
        await asyncio.shield(self._making)

    async def tasks(self, split: str, seed: int) -> IndexedTasks:
        """The tasks of a split, loaded once."""
        await self.ready()
        key = (split, seed)
        if key not in self._tasks or failed(self._tasks[key]):
            self._tasks[key] = asyncio.ensure_future(self._load(split, seed))
        return await asyncio.shield(self._tasks[key])

    async def close(self) -> list[str]:
        """Close what was made, newest first, all of it; returns what went wrong. Idempotent."""
        unfinished = {task for task in (self._making, *self._tasks.values()) if task and not task.done()}
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=CLOSE_TIMEOUT_S)
        self.values.clear()
        outcomes = [await close() for close in reversed(self._closers)]
        self._closers.clear()
        return [describe_error(outcome.error) for outcome in outcomes if outcome.error is not None]

    async def _load(self, split: str, seed: int) -> IndexedTasks:
        limit = self._home.limits.load_timeout_s
        source = await self._home.code.call(self._home.tasks, split, timeout_s=limit)
        view = partial(IndexedTasks, source, split, seed)
        return await self._home.code.call(view, timeout_s=limit, name="tasks")  # type: ignore[no-any-return]

    async def _make_all(self) -> None:
        for item in shared_of(type(self._home)):
            if item.name not in self.values:
                self.values[item.name] = await self._make(item)

    async def _make(self, item: Shared[Any]) -> Any:
        limit = self._home.limits.load_timeout_s
        call = partial(self._home.code.call, timeout_s=limit, name=item.name)
        closing = partial(self._home.code.attempt, timeout_s=CLOSE_TIMEOUT_S, name=item.name)
        value = made = await call(item.make, self._home)
        if isinstance(made, AbstractAsyncContextManager):
            value = await call(made.__aenter__)
            self._closers.append(partial(closing, made.__aexit__, None, None, None))
        elif isinstance(made, AbstractContextManager):
            value = await call(made.__enter__)
            self._closers.append(partial(closing, made.__exit__, None, None, None))
        elif callable(close := getattr(made, "aclose", None) or getattr(made, "close", None)):
            self._closers.append(partial(closing, close))
        return value


def failed(task: asyncio.Task[Any]) -> bool:
    """True when the task ended without a result."""
    return task.done() and (task.cancelled() or task.exception() is not None)


def shared_of(env_class: type) -> list[Shared[Any]]:
    """The shared resources of a class, in the order they were written."""
    names = dict.fromkeys(name for base in reversed(env_class.__mro__) for name in vars(base))
    found = (inspect.getattr_static(env_class, name) for name in names)
    return [item for item in found if isinstance(item, Shared)]


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[type, str], Resources]] = WeakKeyDictionary()


def resources_of(env_class: type[Env], config: Any) -> Resources:
    """The resources of (env class, config) on the running loop, one object for all episodes."""
    held = _BY_LOOP.setdefault(asyncio.get_running_loop(), {})
    key = (env_class, config.model_dump_json())
    if key not in held:
        held[key] = Resources(env_class, config)
    return held[key]


async def close_shared() -> None:
    """Close every shared resource made on the running loop; a worker calls this once, at its end.

    All are closed, each within its deadline, before EnvError tells of those that failed.
    """
    held = _BY_LOOP.pop(asyncio.get_running_loop(), {}).values()
    failures = [failure for resources in held for failure in await resources.close()]
    if failures:
        raise EnvError(f"closing shared resources: {'; '.join(failures)}")

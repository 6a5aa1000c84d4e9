"""`@shared`: resources that all episodes of one process and configuration use."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import CodeType
from typing import Any, Generic, TypeVar, overload

from agentrl.errors import EnvError
from agentrl.plugins.tracebacks import defined_at

T = TypeVar("T")


class Shared(Generic[T]):
    """Declaration of a shared resource. Before an episode begins, the driver sets its value on the author's object."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __get__(self, env: object | None, owner: type) -> T:
        if env is None:
            return self  # type: ignore[return-value]
        name = f"{owner.__name__}.{self.make.__name__}"
        if user := shared_with(owner, sys._getframe(1).f_code):
            where = defined_at(user.make)
            raise EnvError(f"@shared {name} is made after {user.make.__name__}{where}, which uses it: define it before")
        raise EnvError(f"@shared {name} is not available yet: it is made when the first episode begins")


@overload
def shared(make: Callable[[Any], AbstractAsyncContextManager[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], AbstractContextManager[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], Awaitable[T]]) -> Shared[T]: ...
@overload
def shared(make: Callable[[Any], T]) -> Shared[T]: ...
def shared(make: Callable[[Any], Any]) -> Shared[Any]:
    """Make a resource once per process and configuration, and close it with the process; read it as `self.<name>`.

    The method, plain or async, may use `self.config`. It returns a value, whose `aclose()` or `close()` is called at
    the end, or a context manager, sync or async, which is entered and left. A lock or semaphore is a value: it has
    `acquire` and `release`, and is not entered.
    """
    return Shared(make)


def shared_with(env_class: type, code: CodeType) -> Shared[Any] | None:
    """Return the shared resource of a class whose method has this code, if there is one."""
    found = shared_of(env_class).values()
    return next((item for item in found if getattr(inspect.unwrap(item.make), "__code__", None) is code), None)


def shared_of(env_class: type) -> dict[str, Shared[Any]]:
    """Return the shared resources of a class by name, in the order of definition, base classes first."""
    names = dict.fromkeys(name for base in reversed(env_class.__mro__) for name in vars(base))
    found = {name: inspect.getattr_static(env_class, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Shared)}

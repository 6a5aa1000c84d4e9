"""What each event loop has of its own, and what is left of loops that have ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ByLoop(Generic[T]):
    """One thing for each event loop. It may refer to its loop: no garbage collector is relied on."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}
        self._lock = threading.Lock()

    def here(self) -> T:
        """What the running loop has, made when it first asks."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._made[loop] = self._make()
            return self._made[loop]

    def orphans(self) -> list[T]:
        """What loops had that are closed by now; it is forgotten here, and the caller's to end."""
        with self._lock:
            return [self._made.pop(loop) for loop in list(self._made) if loop.is_closed()]

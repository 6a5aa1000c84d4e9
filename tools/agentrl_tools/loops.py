"""State that belongs to an event loop, and its cleanup after the loop has closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ByLoop(Generic[T]):
    """One value per event loop. Values may refer to their loop: cleanup does not depend on garbage collection."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}
        self._lock = threading.Lock()

    def here(self) -> T:
        """Return the value of the running loop; the first call creates it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._made[loop] = self._make()
            return self._made[loop]

    def orphans(self) -> list[T]:
        """Remove and return the values of closed loops; the caller ends them."""
        with self._lock:
            return [self._made.pop(loop) for loop in list(self._made) if loop.is_closed()]

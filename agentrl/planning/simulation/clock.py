"""Simulated time: an event loop whose clock jumps to the next event when nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Jumps(selectors.SelectSelector):
    """Advances the clock by as long as the event loop would sleep; no file is watched."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the clock at once. Without a timer no event can follow, so that the caller waits for ever."""
        assert timeout is not None, "everything waits, and nothing is scheduled"
        self.now += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that runs coroutines written for real time, such as the scheduler, in simulated time.

    `time()` and everything that waits by it (`sleep`, `timeout`, `call_later`) count simulated seconds from 0. Events
    at the same time run in the order in which they were scheduled. Coroutines may wait for each other and for timers,
    but not for threads, files or sockets.
    """

    def __init__(self) -> None:
        self._jumps = Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        """Return the simulated seconds since the start."""
        return self._jumps.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in simulated time; returns as soon as it is computed."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)

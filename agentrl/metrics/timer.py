"""Phase timer: how a command spends its time."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from agentrl.metrics.step import PhaseSeconds

T = TypeVar("T")


class PhaseTimer:
    """Wall-clock seconds by phase. Exactly one phase runs at any moment, so the phases add up to the total.

    The timer begins in the phase `start`, at `began` on the scale of `now` (default: now). Phases are the fields of
    PhaseSeconds. `parts` are the seconds of the parts of the start; some run in parallel, so they do not add up.
    """

    def __init__(self, began: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.began = self.since = now() if began is None else began
        self.current = "start"
        self.parts: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._lapped = PhaseSeconds()

    def enter(self, phase: str) -> str:
        """Begin a phase; returns the phase that ends."""
        ended, now = self.current, self._now()
        self._spent[ended] = self._spent.get(ended, 0.0) + now - self.since
        self.current, self.since = phase, now
        return ended

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block as the phase `name`, then continue the phase around it."""
        around = self.enter(name)
        try:
            yield
        finally:
            self.enter(around)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to the part `name`."""
        began = self._now()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + self._now() - began

    async def timed(self, name: str, work: Awaitable[T]) -> T:
        """Await `work` and add its seconds to the part `name`."""
        with self.part(name):
            return await work

    def spent(self) -> PhaseSeconds:
        """Return the seconds by phase since the timer began."""
        self.enter(self.current)
        return PhaseSeconds(**self._spent)

    def lap(self) -> PhaseSeconds:
        """Return the seconds by phase since the last lap."""
        spent = self.spent()
        lap, self._lapped = spent - self._lapped, spent
        return lap

    def seconds_in_phase(self) -> float:
        """Return the seconds since the current phase began."""
        return self._now() - self.since


def process_began() -> float:
    """Return the time at which this process began (before its first import), on the scale of `time.monotonic`."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age_s)

"""Where the driver's time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentrl.run.record import Seconds


class Clock:
    """Wall-clock seconds by phase since the last `lap`; what no phase claims is `other`. `seen` hears of each phase."""

    def __init__(self, seen: Callable[[str], None]) -> None:
        self._seen = seen
        self._spent: dict[str, float] = {}
        self._began = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside as the phase `name`, a field of Seconds."""
        self._seen(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + time.monotonic() - began

    def lap(self) -> Seconds:
        """What was spent since the last lap."""
        now = time.monotonic()
        total, self._began = now - self._began, now
        spent, self._spent = self._spent, {}
        return Seconds(**spent, other=max(0.0, total - sum(spent.values())))

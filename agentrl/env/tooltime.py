"""Total time of an episode's tool calls. A model that uses it up gets an answer and does not reach the deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

SHARE = 0.5
"""Share of an episode's time: at the deadline the sample would be dropped instead of scored."""


@dataclass(slots=True)
class ToolTime:
    """Time spent in tool calls, out of `limit_s`."""

    limit_s: float
    spent_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """True if no further call may begin."""
        return self.spent_s >= self.limit_s

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge the time spent inside, except in `waiting`."""
        idle = _Idle()
        token = _IDLE.set(idle)
        began = time.monotonic()
        try:
            yield
        finally:
            _IDLE.reset(token)
            self.spent_s += time.monotonic() - began - idle.seconds


@dataclass(slots=True)
class _Idle:
    seconds: float = 0.0


_IDLE: ContextVar[_Idle | None] = ContextVar("_IDLE", default=None)


@contextmanager
def waiting() -> Iterator[None]:
    """Wait for something shared, such as a free sandbox, without charging the model; for async tools."""
    idle, began = _IDLE.get(), time.monotonic()
    try:
        yield
    finally:
        if idle is not None:
            idle.seconds += time.monotonic() - began

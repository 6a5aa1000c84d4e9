"""How long the tool calls of an episode may run in all: what a model can use up is answered, and never a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

SHARE = 0.5
"""Of an episode's time: slow calls must not reach its deadline, which would drop the sample instead of scoring it."""


@dataclass(slots=True)
class ToolTime:
    """What is left of the time for tool calls; `limit_s` is what an episode begins with."""

    limit_s: float
    spent_s: float = 0.0

    @classmethod
    def of(cls, deadline_s: float) -> ToolTime:
        """The time for the calls of an episode of at most `deadline_s` seconds."""
        return cls(SHARE * deadline_s)

    @property
    def is_over(self) -> bool:
        """True when no further call may begin."""
        return self.spent_s >= self.limit_s

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge what runs inside, less what it spends in `waiting`."""
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
    """Inside, an async tool waits for something shared, such as a free sandbox: the model is not charged for it."""
    idle, began = _IDLE.get(), time.monotonic()
    try:
        yield
    finally:
        if idle is not None:
            idle.seconds += time.monotonic() - began

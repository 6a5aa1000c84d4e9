"""Whose doing a failure is: where a known-good request to the same service succeeds, it is the model's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from agentrl.env.driver.user_code import within
from agentrl_tools.loops import ByLoop

HELD_S = 3.0
"""How long an answer counts: a service that dies under a thousand episodes is asked once."""
ASKED_S, PAUSE_S = 15.0, 1.0
"""How long a service is asked again: what failed may still keep it busy, or have it started anew."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a service was well, and when that was known."""

    is_well: bool
    at: float

    @property
    def is_old(self) -> bool:
        """True when it counts no longer."""
        return time.monotonic() > self.at + HELD_S


_Asked = dict[Hashable, asyncio.Task[Answer]]
_asked: ByLoop[_Asked] = ByLoop(dict)


async def works(service: Hashable, request: Callable[[], Awaitable[object]], patience_s: float) -> bool:
    """Whether a known-good request to a service succeeds, now or when asked again within `ASKED_S`.

    All episodes of a worker share one that is running, and its answer for three seconds. `patience_s` is that of the
    request which failed: a slow service must not seem gone because it is slow.
    """
    _asked.orphans()
    held, key = _asked.here(), (service, patience_s)
    asking = held.get(key)
    if asking is None or asking.cancelled() or (asking.done() and asking.result().is_old):
        held[key] = asking = asyncio.ensure_future(_answer(request, patience_s))
    return (await asyncio.shield(asking)).is_well


async def _answer(request: Callable[[], Awaitable[object]], patience_s: float) -> Answer:
    until = time.monotonic() + ASKED_S
    while (await within(request(), patience_s, "a known-good request")).error is not None:
        if time.monotonic() + PAUSE_S > until:
            return Answer(False, time.monotonic())
        await asyncio.sleep(PAUSE_S)
    return Answer(True, time.monotonic())

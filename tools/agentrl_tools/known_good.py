"""Whose doing a failure is: where a known-good request to the same service succeeds, it is the model's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable

from agentrl.env.authored import within
from agentrl_tools.loops import ByLoop

HELD_S = 3.0
"""How long an answer counts: a service that dies under a thousand episodes is asked once."""

_Asked = dict[Hashable, tuple[float, asyncio.Task[bool]]]
_asked: ByLoop[_Asked] = ByLoop(dict)


async def works(service: Hashable, request: Callable[[], Awaitable[object]], patience_s: float) -> bool:
    """Whether a known-good request to a service succeeds; all episodes of a worker share one in three seconds.

    `patience_s` is that of the request which failed: a slow service must not seem gone because it is slow.
    """
    _asked.orphans()
    held, key = _asked.here(), (service, patience_s)
    began, asking = held.get(key, (0.0, None))
    if asking is None or asking.cancelled() or time.monotonic() > began + HELD_S:
        asking = asyncio.ensure_future(_succeeds(request, patience_s))
        held[key] = time.monotonic(), asking
    return await asyncio.shield(asking)


async def _succeeds(request: Callable[[], Awaitable[object]], patience_s: float) -> bool:
    return (await within(request(), patience_s, "a known-good request")).error is None

"""Whose doing a failure is: where a known-good request to the same service succeeds, it is the model's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from weakref import WeakKeyDictionary

from agentrl.env.authored import within

HELD_S = 3.0
"""How long an answer counts: a service that dies under a thousand episodes is asked once."""
DEADLINE_S = 10.0

_Asked = dict[Hashable, tuple[float, asyncio.Task[bool]]]
_asked: WeakKeyDictionary[asyncio.AbstractEventLoop, _Asked] = WeakKeyDictionary()


async def works(service: Hashable, request: Callable[[], Awaitable[object]]) -> bool:
    """Whether a known-good request to a service succeeds; all episodes of a worker share one in three seconds."""
    held = _asked.setdefault(asyncio.get_running_loop(), {})
    began, asking = held.get(service, (0.0, None))
    if asking is None or asking.cancelled() or time.monotonic() > began + HELD_S:
        asking = asyncio.ensure_future(_succeeds(request))
        held[service] = time.monotonic(), asking
    return await asyncio.shield(asking)


async def _succeeds(request: Callable[[], Awaitable[object]]) -> bool:
    return (await within(request(), DEADLINE_S, "a known-good request")).error is None

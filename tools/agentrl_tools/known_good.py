"""Attribution of failures: if a known-good request to the same service succeeds, the model's request is at fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from agentrl.env import within
from agentrl_tools.loops import ByLoop

FRESH_S = 3.0
"""How long a result is reused: a service that dies under a thousand episodes is probed once."""
RETRY_S, PAUSE_S = 15.0, 1.0
"""How long a service is probed: the failed request may still keep it busy, or have restarted it."""


@dataclass(frozen=True, slots=True)
class Health:
    """Result of a probe of a service, and its time."""

    is_well: bool
    at: float

    @property
    def is_old(self) -> bool:
        """True if the result is too old to be reused."""
        return time.monotonic() > self.at + FRESH_S


_Probes = dict[Hashable, asyncio.Task[Health]]
_probes: ByLoop[_Probes] = ByLoop(dict)


async def works(service: Hashable, request: Callable[[], Awaitable[object]], timeout_s: float) -> bool:
    """Return whether a known-good request to a service succeeds, at once or on a retry within `RETRY_S`.

    All episodes of a worker share a running probe, and its result for `FRESH_S`. `timeout_s` is the timeout of the
    request that failed: a slow service must not look dead because it is slow.
    """
    _probes.orphans()
    probes, key = _probes.here(), (service, timeout_s)
    probe = probes.get(key)
    if probe is None or probe.cancelled() or (probe.done() and probe.result().is_old):
        probes[key] = probe = asyncio.ensure_future(_probe(request, timeout_s))
    return (await asyncio.shield(probe)).is_well


async def _probe(request: Callable[[], Awaitable[object]], timeout_s: float) -> Health:
    until = time.monotonic() + RETRY_S
    while (await within(request(), timeout_s, "a known-good request")).error is not None:
        if time.monotonic() + PAUSE_S > until:
            return Health(False, time.monotonic())
        await asyncio.sleep(PAUSE_S)
    return Health(True, time.monotonic())

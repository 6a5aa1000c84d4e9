"""A simulated engine: requests in flight share its steps, prompts are read first, a publication clears its caches."""

from __future__ import annotations

import asyncio
import bisect
import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from agentrl.planning.simulation.cache import Context, PrefixCache
from agentrl.planning.simulation.episode import Spans
from agentrl.types import Version, VersionSpan

TICK_S = 1e-8
"""Events that are closer to each other are simultaneous: the event loop's clock is no finer."""


@dataclass(frozen=True, slots=True)
class EngineRates:
    """What an engine takes: a step, which samples one token of each request, takes `step_s` and `request_s` for each.

    Each token of a prompt that is not in the cache takes `prefill_s` more.
    """

    step_s: float
    request_s: float
    prefill_s: float

    def scaled(self, speed: float) -> EngineRates:
        """Return the rates of an engine that is `speed` times as fast."""
        return EngineRates(self.step_s / speed, self.request_s / speed, self.prefill_s / speed)


@dataclass(order=True, slots=True)
class Request:
    """A request in flight: it began after `began` steps of the engine and ends after `ends`."""

    ends: float
    number: int
    began: float = field(compare=False)
    context: Context = field(compare=False)
    done: asyncio.Future[Spans] = field(compare=False)


class SimulatedEngine:
    """Samples up to `max_num_seqs` requests at once; the others wait in the order in which they came.

    Progress is counted in steps, in each of which every request gets a token, so that an event is due only when a
    request begins or ends. Prompts are read before the steps go on. `block`: that of its PrefixCache.
    """

    def __init__(self, rates: EngineRates, max_num_seqs: int, version: Version, block: int) -> None:
        self._rates, self._max_num_seqs = rates, max_num_seqs
        self._cache = PrefixCache(block)
        self._loop = asyncio.get_running_loop()
        self._steps, self._reading_s, self._since = 0.0, 0.0, self._loop.time()
        self._running: list[Request] = []
        self._waiting: deque[tuple[int, Context, asyncio.Future[Spans]]] = deque()
        self._published: list[tuple[float, Version]] = [(0.0, version)]
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused, self._number = False, 0
        self._busy_s, self.peak = 0.0, 0

    async def generate(self, length: int, context: Context) -> Spans:
        """Sample so many tokens after a context; returns the versions that sampled them."""
        done: asyncio.Future[Spans] = self._loop.create_future()
        self._waiting.append((length, context, done))
        self._go_on()
        return await done

    def pause(self) -> None:
        """Stop sampling; the requests in flight go on after `resume`."""
        self._go_on()
        self._is_paused = True
        self._go_on()

    def resume(self, version: Version) -> None:
        """Go on with the weights `version`; the cache is empty, so that every context in flight is read again."""
        self._cache.clear()
        self._published.append((self._steps, version))
        in_flight = (request.context.grown(round(self._steps - request.began)) for request in self._running)
        self._reading_s = self._rates.prefill_s * sum(map(self._cache.read, in_flight))
        self._is_paused, self._since = False, self._loop.time()
        self._go_on()

    def busy_s(self) -> float:
        """Return the seconds in which it has sampled or read so far."""
        self._advance()
        return self._busy_s

    # --- progress -------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Count the time that has passed, end and begin what is due, and set the timer for the next event."""
        self._advance()
        while self._running and self._left_s <= TICK_S:
            request = heapq.heappop(self._running)
            self._cache.keep(request.context, round(request.ends - request.began))
            if not request.done.done():
                request.done.set_result(self._spans(request))
        while self._waiting and len(self._running) < self._max_num_seqs and not self._is_paused:
            self._begin(*self._waiting.popleft())
        if self._timer:
            self._timer.cancel()
        self._timer = None
        if self._running and not self._is_paused:
            self._timer = self._loop.call_later(self._left_s, self._go_on)

    def _advance(self) -> None:
        now = self._loop.time()
        elapsed, self._since = now - self._since, now
        if not self._running or self._is_paused:
            return
        self._busy_s += elapsed
        read = min(elapsed, self._reading_s)
        self._reading_s -= read
        self._steps += (elapsed - read) / self._step_s

    def _begin(self, length: int, context: Context, done: asyncio.Future[Spans]) -> None:
        self._reading_s += self._rates.prefill_s * self._cache.read(context)
        self._number += 1
        request = Request(self._steps + length, self._number, self._steps, context, done)
        heapq.heappush(self._running, request)
        self.peak = max(self.peak, len(self._running))

    @property
    def _left_s(self) -> float:
        """The seconds until the next request ends."""
        return self._reading_s + max(0.0, self._running[0].ends - self._steps) * self._step_s

    @property
    def _step_s(self) -> float:
        return max(TICK_S, self._rates.step_s + self._rates.request_s * len(self._running))

    def _spans(self, request: Request) -> Spans:
        """Return the versions of a request's tokens, in order."""
        length = round(request.ends - request.began)
        first = bisect.bisect_right(self._published, request.began + 1e-9, key=lambda each: each[0]) - 1
        marks = self._published[first:]
        cuts = [min(length, max(0, math.ceil(step - request.began - 1e-9))) for step, _ in marks[1:]]
        spans = zip((version for _, version in marks), [0, *cuts], [*cuts, length], strict=True)
        return tuple(VersionSpan(version, start, end) for version, start, end in spans if end > start)

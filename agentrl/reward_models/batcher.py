"""Batches of texts from all callers: up to a token budget, after a few milliseconds, from a bounded queue."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentrl.errors import acatch
from agentrl.reward_models.scorer import Ids


class QueueFullError(Exception):
    """The queue has no room for a request."""


class ScoringError(Exception):
    """The model failed on a batch."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A batch has at most `max_tokens` tokens with padding (but at least one text) and waits `wait_s` for more."""

    max_tokens: int = 16_384
    wait_s: float = 0.005
    max_queue: int = 1024


class Batcher:
    """Scores texts in batches on one thread of its own. `run` runs until it is cancelled."""

    def __init__(self, scores: Callable[[Sequence[Ids]], list[float]], limits: BatchLimits) -> None:
        self._scores, self.limits = scores, limits
        self._queue: deque[tuple[Ids, asyncio.Future[float]]] = deque()
        self._arrived = asyncio.Event()
        self._began: float | None = None

    @property
    def queued(self) -> int:
        """Texts that wait for a batch."""
        return len(self._queue)

    @property
    def busy_s(self) -> float:
        """Seconds that the running batch has taken so far; 0 if none runs."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    async def score(self, texts: Sequence[Ids]) -> list[float | None]:
        """Return the score of each text, None for one that is not finite. Raises QueueFullError or ScoringError."""
        if len(self._queue) + len(texts) > self.limits.max_queue:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in texts]
        self._queue.extend(zip(texts, futures, strict=True))
        self._arrived.set()
        try:
            values = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()  # of a caller that is gone: `_next` leaves it out
        return [value if math.isfinite(value) else None for value in values]

    async def run(self) -> None:
        """Score what arrives."""
        thread = ThreadPoolExecutor(1, "reward model")
        try:
            while True:
                await self._arrived.wait()
                if sum(len(ids) for ids, _ in self._queue) < self.limits.max_tokens:
                    await asyncio.sleep(self.limits.wait_s)
                self._arrived.clear()
                while batch := self._next():
                    await self._carry_out(batch, thread)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    async def _carry_out(self, batch: list[tuple[Ids, asyncio.Future[float]]], thread: ThreadPoolExecutor) -> None:
        self._began = time.monotonic()
        loop = asyncio.get_running_loop()
        outcome = await acatch(loop.run_in_executor(thread, self._scores, [ids for ids, _ in batch]))
        self._began = None
        if outcome.error is not None and len(batch) > 1:  # one text fails no other
            for item in batch:
                await self._carry_out([item], thread)
        for index, (_, future) in enumerate(batch):
            if future.done():
                continue
            if outcome.error is not None:
                future.set_exception(ScoringError(f"{type(outcome.error).__name__}: {outcome.error}"))
            else:
                future.set_result(outcome.value[index])

    def _next(self) -> list[tuple[Ids, asyncio.Future[float]]]:
        """Take the next batch from the queue, in order of arrival."""
        batch: list[tuple[Ids, asyncio.Future[float]]] = []
        longest = 0
        while self._queue:
            ids, future = self._queue[0]
            longest = max(longest, len(ids))
            if batch and longest * (len(batch) + 1) > self.limits.max_tokens:
                break
            self._queue.popleft()
            if not future.done():
                batch.append((ids, future))
        return batch

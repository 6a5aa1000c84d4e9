"""Batches of texts from all callers: up to a token budget, after a few milliseconds, from a bounded queue."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentrl.errors import Caught, acatch
from agentrl.reward_models.scorer import Ids, TextError

_Waiting = tuple[Ids, "asyncio.Future[float | TextError]"]


class QueueFullError(Exception):
    """The queue has no room for a request."""


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
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._began: float | None = None
        self._known: Ids = ()  # a token that it has scored
        self.fault = ""  # why the model does not even score one token

    @property
    def queued(self) -> int:
        """Texts that wait for a batch."""
        return len(self._queue)

    @property
    def busy_s(self) -> float:
        """Seconds that the running batch has taken so far; 0 if none runs."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    async def score(self, texts: Sequence[Ids]) -> list[float | TextError]:
        """Return the score of each text, or why it has none. Raises QueueFullError."""
        if len(self._queue) + len(texts) > self.limits.max_queue:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[float | TextError]] = [loop.create_future() for _ in texts]
        self._queue.extend(zip(texts, futures, strict=True))
        self._arrived.set()
        try:
            return await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()  # of a caller that is gone: `_next` leaves it out

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

    async def _carry_out(self, batch: list[_Waiting], thread: ThreadPoolExecutor) -> None:
        outcome = await self._outcome([ids for ids, _ in batch], thread)
        if outcome.error is None:
            self._known, self.fault = batch[0][0][:1], ""
        elif len(batch) > 1:  # one text fails no other
            for item in batch:
                if not item[1].done():
                    await self._carry_out([item], thread)
        else:  # the text is at fault, or a GPU that computes nothing any more
            probe = await self._outcome([self._known or batch[0][0][:1]], thread)
            self.fault = str(_failure(probe.error)) if probe.error is not None else ""
        for index, (_, future) in enumerate(batch):
            if not future.done():
                future.set_result(_failure(outcome.error) if outcome.error else _finite(outcome.value[index]))

    async def _outcome(self, rows: list[Ids], thread: ThreadPoolExecutor) -> Caught:
        self._began = time.monotonic()
        outcome = await acatch(asyncio.get_running_loop().run_in_executor(thread, self._scores, rows))
        self._began = None
        if outcome.error is not None:
            outcome.error.__traceback__ = None  # its frames hold the memory of the failed pass
        return outcome

    def _next(self) -> list[_Waiting]:
        """Take the next batch from the queue, in order of arrival."""
        batch: list[_Waiting] = []
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


def _failure(error: Exception) -> TextError:
    return TextError("model_failed", f"{type(error).__name__}: {error}")


def _finite(value: float) -> float | TextError:
    """Return a score, or the error of one that cannot be used."""
    return value if math.isfinite(value) else TextError("not_finite", "the model's score is not a finite number")

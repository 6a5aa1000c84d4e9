"""Delivery: staged buckets on their way to several engines, each freed when all of them have loaded it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from agentrl.errors import AgentRLError, WeightsError
from agentrl.types import TensorSpec, Version, WeightManifest
from agentrl.weights.staging import Bucket, StagedBucket

AHEAD = 2
"""How many buckets exist at once: one is loaded while the next is written."""


class Delivery:
    """The buckets of one publication. `run` stages them; each reader gets all of them in order, at its own pace.

    A reader that leaves early, because its engine failed, keeps nobody waiting.
    """

    def __init__(self, buckets: AsyncGenerator[StagedBucket], version: Version, readers: int) -> None:
        self._buckets, self._version = buckets, version
        self._at = dict.fromkeys(range(readers), -1)
        self._held: dict[int, StagedBucket] = {}
        self._tensors: list[TensorSpec] = []
        self._count, self._is_over = 0, False
        self._error: AgentRLError | None = None
        self._changed = asyncio.Event()
        self.nbytes = 0

    async def run(self) -> None:
        """Stage the buckets, at most AHEAD of the slowest reader. Raises what staging raises, as readers then do."""
        try:
            async with aclosing(self._buckets) as buckets:
                async for bucket in buckets:
                    self._held[self._count] = bucket
                    self._count += 1
                    self._tensors += bucket.tensors
                    self.nbytes += bucket.nbytes
                    self._is_over = bucket.is_last
                    self._free()
                    await self._until(lambda: len(self._held) < AHEAD)
        except AgentRLError as error:
            self._error = error
            raise
        finally:
            self._is_over = True
            self._announce()

    async def next(self, reader: int) -> Bucket | None:
        """Return what a reader loads next, None after the last bucket; what it got before is loaded.

        Raises WeightsError if staging fails.
        """
        self._at[reader] += 1
        number = self._at[reader]
        self._free()
        await self._until(lambda: number < self._count or self._is_over)
        self._check()
        return self._held[number].load if number < self._count else None

    async def staged(self) -> None:
        """Wait until every bucket is written. Raises WeightsError if staging fails."""
        await self._until(lambda: self._is_over)
        self._check()

    def leave(self, reader: int) -> None:
        """Let no bucket wait for a reader. Idempotent."""
        self._at.pop(reader, None)
        self._free()

    def discard(self) -> None:
        """Remove what is held. Idempotent."""
        self._at.clear()
        self._free()

    @property
    def manifest(self) -> WeightManifest:
        """What an engine must hold after the last bucket."""
        return WeightManifest(self._version, tuple(self._tensors))

    def _check(self) -> None:
        if self._error is not None:
            raise WeightsError(f"staging failed: {self._error}")

    def _free(self) -> None:
        first = min(self._at.values(), default=self._count)
        for number in [number for number in self._held if number < first]:
            self._held.pop(number).discard()
        self._announce()

    def _announce(self) -> None:
        announced, self._changed = self._changed, asyncio.Event()
        announced.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

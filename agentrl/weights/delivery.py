"""Delivery: staged buckets on their way to several engines, each freed when all of them have loaded it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from agentrl.errors import AgentRLError, WeightsError
from agentrl.types import TensorSpec, Version, WeightManifest
from agentrl.weights.staging import Bucket

AHEAD = 2
"""How many buckets exist at once: one is loaded while the next is written."""


class Staged(Protocol):
    """A bucket on the hosts of the engines: `StagedBucket` on one host, or copies of it."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """What the manifest says of its tensors."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    @property
    def is_last(self) -> bool:
        """Whether no bucket follows."""

    async def load_on(self, host: str) -> Bucket:
        """Return the argument of `Engine.load` on a host."""

    def discard(self) -> None:
        """Remove the files. Idempotent."""


class Delivery:
    """The buckets of one publication. `run` stages them; each reader, an engine on one of `hosts`, gets all in order.

    Readers load at their own pace. One that leaves early, because its engine failed, keeps nobody waiting; neither does
    one for which the others have waited `patience_s`.
    """

    def __init__(
        self, buckets: AsyncGenerator[Staged], version: Version, hosts: Sequence[str], patience_s: float
    ) -> None:
        self._buckets, self._version, self._hosts, self._patience_s = buckets, version, hosts, patience_s
        self._at = dict.fromkeys(range(len(hosts)), -1)
        self._held: dict[int, Staged] = {}
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
                    await self._room()
        except AgentRLError as error:
            self._error = error
            raise
        finally:
            self._is_over = True
            self._announce()

    async def next(self, reader: int) -> Bucket | None:
        """Return what a reader loads next, None after the last bucket; what it got before is loaded.

        Raises WeightsError if staging fails, or if the reader has kept the others waiting.
        """
        if reader not in self._at:
            raise WeightsError(f"it kept the other engines waiting for {self._patience_s:g} s")
        self._at[reader] += 1
        number = self._at[reader]
        self._free()
        await self._until(lambda: number < self._count or self._is_over)
        self._check()
        return await self._held[number].load_on(self._hosts[reader]) if number < self._count else None

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

    async def _room(self) -> None:
        """Wait until another bucket may be written, and no longer for readers whose peers have loaded all there is."""
        while len(self._held) >= AHEAD:
            slowest = min(self._at.values())
            try:
                await asyncio.wait_for(self._until(lambda: len(self._held) < AHEAD), self._patience_s)
            except TimeoutError:
                late = [reader for reader, number in self._at.items() if number == slowest]
                if len(late) < len(self._at):
                    for reader in late:
                        self.leave(reader)

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

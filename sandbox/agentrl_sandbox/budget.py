"""Bytes that may be held at once: who wants some waits until others let go of theirs, in order."""

from __future__ import annotations

import asyncio


class Budget:
    """So many bytes, for whoever holds some of them."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def take(self, count: int, within_s: float) -> None:
        """Hold so many; TimeoutError when they are not free within that time."""
        async with asyncio.timeout(within_s), self._turn:
            while self._left < count:
                self._freed.clear()
                await self._freed.wait()
            self._left -= count

    def give(self, count: int) -> None:
        """Let go of so many."""
        self._left += count
        self._freed.set()

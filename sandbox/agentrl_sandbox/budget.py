"""Budget of bytes that may be in use at once; requests wait in order until others release theirs."""

from __future__ import annotations

import asyncio


class Budget:
    """A number of bytes that callers take and give back."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def take(self, count: int, within_s: float) -> None:
        """Take `count` bytes; TimeoutError if they are not free within `within_s`."""
        async with asyncio.timeout(within_s), self._turn:
            while self._left < count:
                self._freed.clear()
                await self._freed.wait()
            self._left -= count

    def give(self, count: int) -> None:
        """Give back `count` bytes."""
        self._left += count
        self._freed.set()

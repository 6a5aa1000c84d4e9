"""Turns on GPUs that engines and learner ranks share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Engines start side by side, and none while it is the learner's turn."""

    def __init__(self) -> None:
        self._is_learners = False
        self._starting = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def start(self) -> AsyncIterator[None]:
        """Wait until it is not the learner's turn; an engine starts inside."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_learners)
            self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1
            async with self._changed:
                self._changed.notify_all()

    async def begin(self, deadline_s: float) -> None:
        """Begin the learner's turn: no engine starts from now on, and those that do are waited for.

        Raises TimeoutError, and then it is nobody's turn.
        """
        self._is_learners = True
        try:
            async with asyncio.timeout(deadline_s), self._changed:
                await self._changed.wait_for(lambda: not self._starting)
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        """End the learner's turn. Idempotent."""
        self._is_learners = False
        async with self._changed:
            self._changed.notify_all()

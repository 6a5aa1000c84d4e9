"""The event loop of an episode, which answers the calls that its agent makes in any other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from agentrl.endpoint.tokens import Tokens
from agentrl.types import Completion

T = TypeVar("T")


class Home:
    """The event loop that runs now. A plain method runs in a thread, where the author may begin a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work in this loop, from any loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def reached(self, tokens: Tokens) -> Tokens:
        """Return tokens that are sampled in this loop, from any loop."""

        async def generate(ids: Sequence[int], max_tokens: int | None = None, stop: Sequence[str] = ()) -> Completion:
            return await self.run(tokens.generate(ids, max_tokens, stop))

        return replace(tokens, generate=generate)

"""Transfers of weights to the engines: staged in shared memory, or sent from GPU to GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, WeightsError
from agentrl.types import Version
from agentrl.weights.staging import Staged


class TransferError(WeightsError):
    """A transfer to all engines failed as a whole: none of them can go on."""


class Transfer(Protocol):
    """How weights travel from the learner to the engines."""

    def opened(
        self, engines: Sequence[Engine], version: Version, deadline_s: float
    ) -> AbstractAsyncContextManager[Staged | None]:
        """Provide the learner's weights as `version`: files to load, None if the engines, paused, hold them already."""


class StagedTransfer:
    """Weights are written into shared memory once; each engine loads them from there at its own pace."""

    def __init__(self, stage: Callable[[Version, float], Awaitable[Staged]]) -> None:
        self._stage = stage

    @asynccontextmanager
    async def opened(self, _engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[Staged]:
        """Stage the weights, and discard them afterwards."""
        staged = await self._stage(version, deadline_s)
        try:
            yield staged
        finally:
            staged.discard()


class CollectiveTransfer:
    """One collective `send` updates all engines, paused together: all or none (`agentrl.weights.collective`)."""

    def __init__(self, send: Callable[[Version, Sequence[Engine], float], Awaitable[None]]) -> None:
        self._send = send

    @asynccontextmanager
    async def opened(self, engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[None]:
        """Pause every engine and send. Raises TransferError: a broken collective leaves no engine whole."""
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.gather(*(engine.pause(deadline_s) for engine in engines))
                await self._send(version, engines, deadline_s)
        except AgentRLError as error:
            raise TransferError(str(error)) from error
        except TimeoutError:
            raise TransferError(f"sending version {version} took longer than {deadline_s:g} s") from None
        yield

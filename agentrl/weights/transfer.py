"""The ways of weights to the engines: staged in shared memory, or sent from GPU to GPU."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, DeadlineError, WeightsError
from agentrl.types import Version
from agentrl.weights.staging import Staged

T = TypeVar("T")


class Stopwatch:
    """The seconds of the parts of a publication, under one deadline, which counts from `began` (default: now)."""

    def __init__(self, deadline_s: float, began: float | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._deadline_s = deadline_s
        self._ends_at = (time.monotonic() if began is None else began) + deadline_s

    async def lap(self, part: str, call: Callable[[float], Awaitable[T]]) -> T:
        """Return the result of `call(seconds left)`, a part; raises DeadlineError when no time is left."""
        began = time.monotonic()
        if began >= self._ends_at:
            raise DeadlineError(f"publishing took longer than {self._deadline_s:g} s")
        try:
            return await call(self._ends_at - began)
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began


Load = Callable[[Engine], Awaitable[Stopwatch]]
"""Let one engine hold the new version, paused; returns the stopwatch for the rest of its publication."""


class TransferError(WeightsError):
    """A transfer to all engines failed as a whole: none of them can go on."""


class Transfer(Protocol):
    """How weights travel from the learner to the engines."""

    def opened(
        self, engines: Sequence[Engine], version: Version, deadline_s: float
    ) -> AbstractAsyncContextManager[Load]:
        """Provide the learner's weights as `version`, for as long as the engines load them."""


class StagedTransfer:
    """Weights are written into shared memory once; each engine loads them from there at its own pace."""

    def __init__(self, stage: Callable[[Version, float], Awaitable[Staged]]) -> None:
        self._stage = stage

    @asynccontextmanager
    async def opened(self, _engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[Load]:
        """Stage the weights, and discard them afterwards."""
        staged = await self._stage(version, deadline_s)
        try:
            yield partial(_load, staged, deadline_s)
        finally:
            staged.discard()


async def _load(staged: Staged, deadline_s: float, engine: Engine) -> Stopwatch:
    watch = Stopwatch(deadline_s)
    await watch.lap("pause_s", engine.pause)
    await watch.lap("load_s", engine.start_update)
    for bucket in staged.buckets:
        await watch.lap("load_s", partial(engine.load, bucket))
    await watch.lap("verify_s", partial(engine.finish_update, staged.manifest))
    return watch


class CollectiveTransfer:
    """One collective `send` updates all engines, paused together: all or none (`agentrl.weights.collective`)."""

    def __init__(self, send: Callable[[Version, Sequence[Engine], float], Awaitable[None]]) -> None:
        self._send = send

    @asynccontextmanager
    async def opened(self, engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[Load]:
        """Pause every engine and send. Raises TransferError: a broken collective leaves no engine whole."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.gather(*(engine.pause(deadline_s) for engine in engines))
                await self._send(version, engines, deadline_s)
        except AgentRLError as error:
            raise TransferError(str(error)) from error
        except TimeoutError:
            raise TransferError(f"sending version {version} took longer than {deadline_s:g} s") from None
        yield partial(_loaded, deadline_s, began)


async def _loaded(deadline_s: float, began: float, _engine: Engine) -> Stopwatch:
    """Load nothing: the collective send has updated the engine, and spent a part of the deadline."""
    return Stopwatch(deadline_s, began)

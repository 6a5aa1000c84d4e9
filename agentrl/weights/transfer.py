"""Transfers of weights to the engines: staged in shared memory, or sent from GPU to GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, LearnerError, WeightsError
from agentrl.types import Version
from agentrl.weights.delivery import Delivery, Staged
from agentrl.weights.staging import StagedBucket

PATIENCE = 0.25
"""The share of a publication's deadline for which the other engines wait for one that pauses or loads a bucket."""


class TransferError(WeightsError):
    """A transfer to all engines failed as a whole: none of them can go on."""


def of_engine(failure: BaseException) -> AgentRLError:
    """Return the failure of an engine; raise what is none: that of the learner, a bug or a cancellation."""
    if isinstance(failure, AgentRLError) and not isinstance(failure, LearnerError):
        return failure
    raise failure


class Transfer(Protocol):
    """How weights travel from the learner to the engines."""

    async def prepare(self, engines: Sequence[Engine], deadline_s: float, /) -> dict[int, AgentRLError]:
        """Do with every engine what the transfer needs before it; returns the failures by the engine's index."""

    def opened(
        self, engines: Sequence[Engine], version: Version, deadline_s: float
    ) -> AbstractAsyncContextManager[Delivery | None]:
        """Provide the learner's weights as `version`: buckets, or None if the engines, paused, hold them already."""


class Relay(Protocol):
    """Takes staged buckets to the hosts of engines: `agentrl.cluster.relay.HostRelay`."""

    def host_of(self, engine: Engine) -> str:
        """Return the host of an engine."""

    def relayed(
        self, buckets: AsyncGenerator[StagedBucket], hosts: Sequence[str], deadline_s: float
    ) -> AsyncGenerator[Staged]:
        """Yield each bucket for these hosts."""


class StagedTransfer:
    """Weights are written into shared memory bucket by bucket; each engine loads them from there at its own pace.

    `buckets(version, deadline_s)` writes them, each when it is asked for; `relay` takes them to engines of other hosts.
    """

    def __init__(
        self, buckets: Callable[[Version, float], AsyncGenerator[StagedBucket]], relay: Relay | None = None
    ) -> None:
        self._buckets, self._relay = buckets, relay

    async def prepare(self, _engines: Sequence[Engine], _deadline_s: float, /) -> dict[int, AgentRLError]:
        """Do nothing: an engine is paused when its first bucket is there."""
        return {}

    @asynccontextmanager
    async def opened(self, engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[Delivery]:
        """Stage the weights. Raises what staging raises, when the block has ended."""
        buckets, relay = self._buckets(version, deadline_s), self._relay
        hosts = [relay.host_of(engine) if relay else "" for engine in engines]
        staged = relay.relayed(buckets, hosts, deadline_s) if relay else buckets
        delivery = Delivery(staged, version, hosts, deadline_s * PATIENCE)
        staging = asyncio.create_task(delivery.run())
        try:
            yield delivery
            delivery.discard()
            await staging
        finally:
            staging.cancel()
            await asyncio.gather(staging, return_exceptions=True)
            delivery.discard()


class CollectiveTransfer:
    """One collective `send` updates all engines that could be paused: all or none (`agentrl.weights.collective`)."""

    def __init__(self, send: Callable[[Version, Sequence[Engine], float], Awaitable[None]]) -> None:
        self._send = send

    async def prepare(self, engines: Sequence[Engine], deadline_s: float, /) -> dict[int, AgentRLError]:
        """Pause every engine."""
        outcomes = await asyncio.gather(*(engine.pause(deadline_s) for engine in engines), return_exceptions=True)
        failures = {index: outcome for index, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)}
        return {index: of_engine(failure) for index, failure in failures.items()}

    @asynccontextmanager
    async def opened(self, engines: Sequence[Engine], version: Version, deadline_s: float) -> AsyncIterator[None]:
        """Send. Raises TransferError for what is no fault of the learner: a broken collective leaves no engine whole.

        Ranks of the learner that fail, or do not answer, cannot go on together: what they raise ends the run.
        """
        try:
            await self._send(version, engines, deadline_s)
        except WeightsError as error:
            raise TransferError(str(error)) from error
        yield

"""The learner's weights become the engines': brought there, proven, and brought again to an engine that came back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from agentrl.cluster.engines import Engines
from agentrl.cluster.roles import RemoteEngine
from agentrl.errors import WeightsError
from agentrl.training.transfers import Bring
from agentrl.types import Version
from agentrl.weights.publisher import Probe, Published


class Publication:
    """Publishes to the engines by way of `bring`. While `still` is held the learner's weights do not change.

    `takes_turns`: engines and learner share GPUs, so engines sleep from `give_way` to the next publication.
    """

    def __init__(
        self,
        bring: Bring,
        engines: Engines,
        probe: Callable[[], Awaitable[Probe | None]],
        deadline_s: float,
        *,
        takes_turns: bool = False,
    ) -> None:
        self._bring, self._engines, self._probe, self._deadline_s = bring, engines, probe, deadline_s
        self._takes_turns, self._is_asleep = takes_turns, False
        self._lock = asyncio.Lock()
        self._version: Version | None = None
        engines.refill = self.refill

    @property
    def still(self) -> AbstractAsyncContextManager[None]:
        """Held from the beginning of an update to the end of its publication."""
        return self._lock

    async def give_way(self) -> None:
        """Let the learner have the GPUs, if it shares them."""
        if self._takes_turns:
            await self._engines.sleep(self._deadline_s)
            self._is_asleep = True

    async def publish(self, version: Version) -> Published:
        """Bring the present weights into every engine as `version`; call with `still` held."""
        self._version = version
        if self._is_asleep:
            await self._engines.wake(self._deadline_s)
            self._is_asleep = False
        probe = await self._probe()
        return await self._engines.publish(lambda engines: self._bring(engines, version, probe, self._deadline_s))

    async def keep(self) -> None:
        """Let the engines go on with what they hold, where the learner's weights did not change; with `still` held."""
        if self._is_asleep and self._version is not None:
            await self.publish(self._version)

    async def refill(self, engine: RemoteEngine) -> None:
        """Bring the present version into an engine that was started anew."""
        async with self._lock:
            if self._version is None:
                raise WeightsError("nothing was published yet")
            await self._bring([engine], self._version, await self._probe(), self._deadline_s)

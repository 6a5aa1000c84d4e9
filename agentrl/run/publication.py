"""The learner's weights become the engines': staged, published, proven; once more for an engine that came back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from agentrl.errors import WeightsError
from agentrl.run.engines import Engines
from agentrl.run.learners import Learners
from agentrl.run.roles import RemoteEngine
from agentrl.types import Version
from agentrl.weights.canary import Canary
from agentrl.weights.publish import Probe, Published, publish
from agentrl.weights.sender import Staged


class Publication:
    """Brings `version` to the engines. While `still` is held the learner's weights do not change."""

    def __init__(self, learners: Learners, engines: Engines, canary: Canary | None, deadline_s: float) -> None:
        self._learners, self._engines, self._canary, self._deadline_s = learners, engines, canary, deadline_s
        self._lock = asyncio.Lock()
        self.version: Version | None = None
        engines.refill = self.refill

    @property
    def still(self) -> AbstractAsyncContextManager[None]:
        """Held from the beginning of an update to the end of its publication."""
        return self._lock

    async def publish(self, version: Version) -> Published:
        """Bring the present weights into every engine as `version`; call with `still` held."""
        self.version = version
        return await self._send(lambda staged, probe: self._engines.publish(staged, probe, self._deadline_s))

    async def refill(self, engine: RemoteEngine) -> None:
        """Bring the present version into an engine that was started anew."""
        async with self._lock:
            await self._send(lambda staged, probe: publish([engine], staged, probe, self._deadline_s))

    async def _send(self, send: Callable[[Staged, Probe | None], Awaitable[Published]]) -> Published:
        if self.version is None:
            raise WeightsError("nothing was published yet")
        staged: Staged = await self._learners.stage(self.version, self._deadline_s)
        try:
            return await send(staged, await self._probe())
        finally:
            staged.discard()

    async def _probe(self) -> Probe | None:
        if self._canary is None:
            return None
        return Probe(self._canary, await self._learners.logprobs(self._canary.ids, self._deadline_s))

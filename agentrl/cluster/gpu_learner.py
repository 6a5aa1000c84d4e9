"""A learner rank that sends its weights from GPU to GPU. Not yet verified on a GPU."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.cluster.ray import free_port
from agentrl.engine.remote import RemoteEngine
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from agentrl.types import Version
from agentrl.weights.collective import GpuSender, Rendezvous, Source, SyncClient


@dataclass(frozen=True)
class Route:
    """How weights travel: vLLM's backend, the number of sending ranks, and of receiving workers of each engine."""

    backend: Literal["nccl", "ipc"]
    ranks: int
    workers_per_engine: int


class GpuLearner(PolicyLearner):
    """A PolicyLearner with vLLM's trainer side of `nccl` or `ipc`; every rank calls `send` together."""

    def __init__(self, spec: LearnerSpec, rank: int, address: str, port: int, route: Route) -> None:
        super().__init__(spec, rank, route.ranks, address, port)
        self._route, self._address = route, address
        self._sender: GpuSender | None = None
        self._receivers: list[str] = []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="engine calls", daemon=True).start()

    def send(self, version: Version, engines: Sequence[RemoteEngine], deadline_s: float) -> None:
        """Send the present weights to paused engines; reconnects if they are not those of the last call."""
        receivers = [engine.actor.key for engine in engines]
        if self._sender is None or receivers != self._receivers:
            self._sender, self._receivers = self._connected(engines, deadline_s), receivers
        self._sender.send(version)

    def _connected(self, engines: Sequence[RemoteEngine], deadline_s: float) -> GpuSender:
        if self._sender is not None:
            self._sender.close()
        route = self._route
        client = SyncClient(engines, self._loop, deadline_s, route.workers_per_engine)
        rendezvous = Rendezvous(self._address, free_port(), 1 + route.workers_per_engine * len(engines))
        return GpuSender(route.backend, Source(self.weights, self.shapes), client, self.rank, rendezvous)

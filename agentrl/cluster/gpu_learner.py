"""A learner rank that sends its weights from GPU to GPU. docs/verified.md says what of it has run on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.cluster.ports import free_port
from agentrl.engine.remote import RemoteEngine
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from agentrl.types import Version
from agentrl.weights.collective import GpuSender, Route, Source


class GpuLearner(PolicyLearner):
    """A PolicyLearner with vLLM's trainer side of `nccl` or `ipc`; every rank calls `send` together."""

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, address: str, port: int, route: Route) -> None:
        super().__init__(spec, rank, world_size, address, port)
        source = Source(self.weights, self.shapes)
        self._sender = GpuSender(route, source, rank, address, free_port, spec.bucket_bytes)

    def send(self, version: Version, engines: Sequence[RemoteEngine], deadline_s: float) -> None:
        """Send the present weights to paused engines."""
        with self._activity("send"):
            self._sender.send(version, engines, [engine.actor.key for engine in engines], deadline_s)

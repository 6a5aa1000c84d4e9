"""The ways weights take to the engines of a run: staged in shared memory, or sent from GPU to GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from agentrl.cluster.learners import Learners
from agentrl.cluster.roles import RemoteEngine
from agentrl.types import Version
from agentrl.weights.publisher import Probe, Published, publish, publish_sent
from agentrl.weights.staging import Staged

Bring = Callable[[Sequence[RemoteEngine], Version, Probe | None, float], Awaitable[Published]]
Stage = Callable[[Version, float], Awaitable[Staged]]


def staged(stage: Stage) -> Bring:
    """Weights are written into shared memory once, and every engine loads them from there."""

    async def bring(
        engines: Sequence[RemoteEngine], version: Version, probe: Probe | None, deadline_s: float
    ) -> Published:
        written = await stage(version, deadline_s)
        try:
            return await publish(engines, written, probe, deadline_s)
        finally:
            written.discard()

    return bring


def sent(learners: Learners) -> Bring:
    """Learner ranks send to all engines together, from GPU to GPU. Not yet verified on a GPU."""

    async def bring(
        engines: Sequence[RemoteEngine], version: Version, probe: Probe | None, deadline_s: float
    ) -> Published:
        async def send() -> None:
            await learners.send(version, [engine.remote for engine in engines], deadline_s)

        return await publish_sent(engines, send, version, probe, deadline_s)

    return bring


def of_folder(model: Path, staging: Path, bucket_bytes: int) -> Bring:
    """The weights of the model folder as they are, for an evaluation without a learner."""

    async def stage_folder(version: Version, deadline_s: float) -> Staged:
        return await asyncio.wait_for(asyncio.to_thread(_stage, model, version, staging, bucket_bytes), deadline_s)

    return staged(stage_folder)


def _stage(model: Path, version: Version, staging: Path, bucket_bytes: int) -> Staged:
    from safetensors.torch import load_file

    from agentrl.weights.staging import stage

    files = sorted(model.glob("*.safetensors"))
    tensors = (item for file in files for item in load_file(file).items())
    return stage(tensors, version, staging, bucket_bytes)

"""Placement by Ray: which GPUs processes see."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray import ActorHandle, ActorSpec, Cluster
from verification.check import BoundError, Setting

DEADLINE_S = 60.0


class Eyes:
    """A process that says which GPUs it sees."""

    def gpus(self, device: str) -> tuple[str, ...]:
        """Return the ids of the GPUs that CUDA shows, or those that Ray set."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        if device == "cpu":
            return tuple(filter(None, visible.split(",")))
        import torch

        return tuple(str(torch.cuda.get_device_properties(n).uuid) for n in range(torch.cuda.device_count()))


def gpus(setting: Setting) -> str:
    """Place an engine and a rank on one shared GPU, then as many processes as there are GPUs on one each."""
    return asyncio.run(_gpus(setting))


async def _gpus(setting: Setting) -> str:
    shared = await _seen(setting, [ActorSpec(f"half {n}", Eyes, gpus=0.5, bundle=0) for n in range(2)], [{"GPU": 1.0}])
    own = await _seen(setting, [ActorSpec(f"whole {n}", Eyes, gpus=1.0) for n in range(setting.gpus)], None)
    none = await _seen(setting, [ActorSpec("none", Eyes, env={"CUDA_VISIBLE_DEVICES": ""})], None)
    if len(shared[0]) != 1 or shared[0] != shared[1]:
        raise BoundError(f"two processes of one bundle see {shared}")
    if any(len(each) != 1 for each in own) or len(set(own)) != setting.gpus:
        raise BoundError(f"{setting.gpus} processes with a GPU each see {own}")
    if none != [()]:
        raise BoundError(f"a process without GPUs sees {none}")
    return (
        f"two processes of one bundle see one GPU, {len(own)} with a GPU each see different ones, one without sees none"
    )


async def _seen(
    setting: Setting, specs: list[ActorSpec], bundles: list[dict[str, float]] | None
) -> list[tuple[str, ...]]:
    """Return what each process sees, in a cluster of their own."""
    cluster = Cluster("verify-gpu", ProcessRegistry(_empty(setting.folder / "cluster")), bundles)
    try:
        await cluster.ready(DEADLINE_S)
        actors = [cluster.spawn(spec) for spec in specs]
        return await asyncio.gather(*(_of(actor, setting.device) for actor in actors))
    finally:
        await asyncio.to_thread(cluster.close)


async def _of(actor: ActorHandle, device: str) -> tuple[str, ...]:
    await actor.make(deadline_s=DEADLINE_S)
    seen: tuple[str, ...] = await actor.call("gpus", device, deadline_s=DEADLINE_S)
    return seen


def _empty(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder

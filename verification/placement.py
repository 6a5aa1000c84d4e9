"""Placement by Ray: which GPUs processes see."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentrl.cluster.placement import Bundle, Place
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
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
    """Place a rank and an engine that share a GPU, then as many processes as there are GPUs on one each."""
    return asyncio.run(_gpus(setting))


async def _gpus(setting: Setting) -> str:
    async with _cluster(setting, [{"GPU": 1.0}]) as cluster:
        rank = await _made(cluster, ActorSpec("rank", Eyes, place=Place(0, 1.0), is_blocking=True))
        env = {"CUDA_VISIBLE_DEVICES": ",".join(await rank.devices(DEADLINE_S))}
        engine = await _made(cluster, ActorSpec("engine", Eyes, env=env, place=Place(0)))
        shared = [await _seen(actor, setting) for actor in (rank, engine)]
    async with _cluster(setting) as cluster:
        places = [Place(gpus=1.0)] * setting.gpus
        actors = [await _made(cluster, ActorSpec(f"whole {n}", Eyes, place=place)) for n, place in enumerate(places)]
        own = [await _seen(actor, setting) for actor in actors]
        none = await _seen(await _made(cluster, ActorSpec("none", Eyes, env={"CUDA_VISIBLE_DEVICES": ""})), setting)
    if len(shared[0]) != 1 or shared[0] != shared[1]:
        raise BoundError(f"a rank and the engine that shares its GPU see {shared}")
    if any(len(each) != 1 for each in own) or len(set(own)) != setting.gpus:
        raise BoundError(f"{setting.gpus} processes with a GPU each see {own}")
    if none != ():
        raise BoundError(f"a process without GPUs sees {none}")
    return f"a rank and its engine see one GPU, {len(own)} with a GPU each see different ones, one without sees none"


@asynccontextmanager
async def _cluster(setting: Setting, bundles: Sequence[Bundle] | None = None) -> AsyncIterator[Cluster]:
    cluster = Cluster("verify-gpu", ProcessRegistry(_empty(setting.folder / "cluster")), bundles)
    try:
        await cluster.ready(DEADLINE_S)
        yield cluster
    finally:
        await asyncio.to_thread(cluster.close)


async def _made(cluster: Cluster, spec: ActorSpec) -> ActorHandle:
    actor = cluster.spawn(spec)
    await actor.make(deadline_s=DEADLINE_S)
    return actor


async def _seen(actor: ActorHandle, setting: Setting) -> tuple[str, ...]:
    seen: tuple[str, ...] = await actor.call("gpus", setting.device, deadline_s=DEADLINE_S)
    return seen


def _empty(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder

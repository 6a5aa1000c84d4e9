"""Weights from the learner to vLLM's workers, by the processes of a run: over CUDA IPC or NCCL."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from agentrl.cluster.actors import Actors, actors
from agentrl.cluster.signals import Stop
from agentrl.config.machine import detect
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import read_restarts
from agentrl.training.setup import publisher_of
from agentrl.types import Version
from agentrl.weights.publisher import Publisher
from tests.unit.learner.synthetic import batch
from verification.check import BoundError, Setting
from verification.models import deep, small

STEP_S = 120.0
PUBLICATIONS = 3


def ipc(setting: Setting) -> str:
    """Publish three times to an engine that shares the learner's GPU, and sleeps while the learner works."""
    return asyncio.run(_published(setting, {"engine": {"placement": "colocate"}}))


def nccl(setting: Setting) -> str:
    """Publish three times to an engine on another GPU."""
    return asyncio.run(_published(setting, {"engine": {"placement": "separate"}}))


def nccl_sharded(setting: Setting) -> str:
    """Publish three times to an engine on two other GPUs."""
    return asyncio.run(_published(setting, {"engine": {"placement": "separate", "tensor_parallel": 2}}))


def ipc_sharded(setting: Setting) -> str:
    """Publish three times to an engine on the GPUs of two ranks, which take turns with it."""
    sections = {"engine": {"placement": "colocate", "tensor_parallel": 2}, "learner": {"ranks": 2}}
    return asyncio.run(_published(setting, sections))


def shared_memory(setting: Setting) -> str:
    """Publish three times to an engine on CPUs, as the others do on GPUs."""
    return asyncio.run(_published(setting, {"engine": {"threads": 1, "kv_cache_gib": 1}, "learner": {"threads": 1}}))


async def _published(setting: Setting, sections: dict[str, Any]) -> str:
    """Train and publish in turns. Verification and canary compare what every engine holds with the learner."""
    on_cpu = setting.device == "cpu"
    model = small(setting.folder / "model") if on_cpu else deep(setting.folder / "model")
    config = _config(setting, model, sections)
    folder = RunFolder(setting.folder / "run")
    folder.path.mkdir()
    said = []
    async with actors(config, model, folder, Stop(), PhaseTimer(), print) as team:
        publisher = publisher_of(config, model, team)
        for number in range(PUBLICATIONS):
            said.append(await _publication(publisher, team, folder, Version(0, number)))
            await publisher.yield_gpus()
            await team.learners.step(batch(3, 4, number), {}, STEP_S)
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 2**20
    return f"{config.weights.transfer}, {size:.0f} MiB in float32: {'; '.join(said)}"


def _config(setting: Setting, model: Path, sections: dict[str, Any]) -> Config:
    common: dict[str, Any] = {
        "device": setting.device,
        "model": {"name": str(model), "max_context": 512},
        "rollout": {"max_tokens": 16},
    }
    learner = {"lr": 1e-4} | sections.get("learner", {})
    return resolve_run(Config.model_validate({**common, **sections, "learner": learner}), detect())


async def _publication(publisher: Publisher, team: Actors, folder: RunFolder, version: Version) -> str:
    """Publish once. Raises BoundError unless every engine serves the version."""
    began = time.perf_counter()
    async with publisher.lock:
        timings = await publisher.publish(version)
    seconds = time.perf_counter() - began
    if lost := read_restarts(folder):
        raise BoundError(f"publication {version}: {lost[0].process}: {lost[0].why}")
    served = [await engine.version() for engine in team.engines.serving().values()]
    if set(served) != {version}:
        raise BoundError(f"after publication {version} the engines serve {served}")
    return f"{seconds:.2f} s, canary {timings.canary:.1e}"

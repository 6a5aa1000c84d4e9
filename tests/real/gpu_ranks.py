"""A rank in test_gpu_learner.py: the learner of a run on GPUs sends its weights to engines in the process of rank 0.

The GPUs are fakes, and the learner computes on the CPU. What is tested is real: the learner that a run makes, its ranks
with their collectives, and vLLM's transfer engines on both sides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch

from agentrl.cluster import specs
from agentrl.cluster.gpu_learner import GpuLearner
from agentrl.config.models import Models
from agentrl.config.schema import Config
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError
from agentrl.types import Version
from tests.real.fake_gpus import WorkerEngine, installed
from tests.real.rank_processes import work
from tests.unit.learner.synthetic import batch

BUCKET = 40_000
"""Bytes, so that the model takes several buckets."""
ELSEWHERE = 2
"""A GPU on which no rank is."""

Fault = Literal["", "dies", "hangs", "elsewhere"]


@dataclass(frozen=True)
class Job:
    """Sends one after another, each with a fault of the last engine; after a fault all engines are new."""

    config: Config
    faults: tuple[Fault, ...]
    deadline_s: float
    hang_s: float
    port: int
    folder: Path
    mark: str


@dataclass(frozen=True)
class Sent:
    """A send of one rank, and the loss of a step after it. What engines saw is known to rank 0, which has them.

    `calls` are those of each engine, `received` the names that came to each worker, `differing` those of weights that
    some worker does not hold, and `mapped` the GPUs whose memory workers mapped.
    """

    said: str
    seconds: float
    loss: float
    declared: list[str]
    calls: list[list[str]]
    received: list[list[str]]
    differing: list[str]
    mapped: list[str]


class InProcess:
    """The process of an engine as its callers see it, in this process."""

    def __init__(self, key: str, engine: WorkerEngine) -> None:
        self.name = self.key = key
        self._engine = engine

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        async with asyncio.timeout(deadline_s):
            return await getattr(self._engine, method)(*args)

    def kill(self) -> None: ...


def sends(job: Job, rank: int) -> list[Sent]:
    """Make the learner of a run, and let it send as often as the job says."""
    patch = pytest.MonkeyPatch()
    gpus = installed(patch, job.folder, ("GPU-0", "GPU-1", f"GPU-{ELSEWHERE}")[rank:])
    _compute_on_the_cpu(patch)
    models = Models(Path(job.config.model.name))
    learner = cast(
        GpuLearner, specs.make_learner(job.config, models, job.folder, job.mark, rank, "127.0.0.1", job.port)
    )
    out, team = list[Sent](), list[WorkerEngine]()
    for number, fault in enumerate(job.faults):
        if number == 0 or job.faults[number - 1]:
            first, team = number, _engines(job.config, learner, fault)
        _spoil(team[-1], fault, job.config.weights.transfer)
        remotes = [RemoteEngine(InProcess(f"{first}-{index}", engine)) for index, engine in enumerate(team)]
        deadline_s = job.hang_s if fault == "hangs" else job.deadline_s
        gpus.mapped.clear()
        began = time.monotonic()
        said = _said(lambda: learner.send(Version(0, number), remotes, deadline_s))  # noqa: B023
        seconds = time.monotonic() - began
        weights = {name: tensor.clone() for name, tensor in learner.weights()}
        workers = [worker for engine in team for worker in engine.workers if worker.observer]
        out.append(
            Sent(
                said,
                seconds,
                learner.step(batch(3, 4, number)).loss,
                [name for name, _ in learner.shapes()],
                [list(engine.calls) for engine in team],
                [[name for name, _ in worker.observer.digests] for worker in workers],
                _differing(team, weights),
                sorted(gpus.mapped),
            )
        )
    learner.close()
    return out


def _compute_on_the_cpu(patch: pytest.MonkeyPatch) -> None:
    """Let a configuration for GPUs make a rank that computes on the CPU."""
    rank_spec = specs._rank_spec

    def on_cpu(*args: Any) -> Any:
        return replace(rank_spec(*args), device="cpu", bucket_bytes=BUCKET)

    patch.setattr(specs, "_rank_spec", on_cpu)


def _engines(config: Config, learner: GpuLearner, fault: Fault) -> list[WorkerEngine]:
    """Return engines on as many GPUs each as the configuration says; those that share GPUs are on the ranks'."""
    shapes = {name: tensor.shape for name, tensor in learner.shapes()}
    is_shared, size = config.engine.placement == "colocate", config.engine.gpus
    places = [
        [index * size + worker if is_shared else 0 for worker in range(size)] for index in range(config.engine.count)
    ]
    if fault == "elsewhere":
        places[-1][-1] = ELSEWHERE
    return [WorkerEngine(config.weights.transfer, shapes, devices) for devices in places]


def _spoil(engine: WorkerEngine, fault: Fault, backend: str) -> None:
    if fault == "dies":  # for ipc a send has a call for each bucket
        engine.dies_at = engine.calls.count("load") + (2 if backend == "ipc" else 1)
    elif fault == "hangs":
        engine.hangs_in = "load"


def _differing(team: list[WorkerEngine], weights: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of weights that some worker does not hold."""
    return [
        name
        for name, tensor in weights.items()
        if not all(torch.equal(model.held(name), tensor) for engine in team for model in engine.models)
    ]


def _said(call: Callable[[], None]) -> str:
    try:
        call()
    except (AgentRLError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Do what one rank of a job does."""
    work(sends)

"""Learners in processes of their own, one for each rank, which see one GPU each."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import distributed as dist

from agentrl.algorithms.sample import TrainSequence
from agentrl.cluster.ports import free_port
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from tests.real.learner_ranks import scored
from verification.check import BoundError
from verification.memory import Peak, held

TEXT = [[*range(20, 84)], [5, 6, 7]]
"""Sequences whose logprobs are compared after the last step."""
Batch = list[TrainSequence]


@dataclass(frozen=True)
class Job:
    """Steps of learners, one learner after another, on every rank."""

    specs: tuple[LearnerSpec, ...]
    batches: tuple[Batch, ...]
    ranks: int
    port: int
    folder: Path


@dataclass(frozen=True)
class Trained:
    """What a learner reports: the loss and gradient norm of every step, logprobs of TEXT before and after all steps.

    Bytes of the device: `held_bytes` are those of model and optimizer between steps, `peak_bytes` the most that a step
    takes beyond them, which is measured after the first.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    held_bytes: int
    peak_bytes: int
    parameters: int


def trained(specs: Sequence[LearnerSpec], batches: Sequence[Batch], folder: Path, ranks: int = 1) -> list[Trained]:
    """Train with each spec on all batches, those of a device in the same processes, and return rank 0's reports.

    Raises BoundError if a rank fails.
    """
    found: dict[int, Trained] = {}
    for device in dict.fromkeys(spec.device for spec in specs):
        numbers = [number for number, spec in enumerate(specs) if spec.device == device]
        job = Job(tuple(specs[number] for number in numbers), tuple(batches), ranks, free_port(), folder)
        found |= dict(zip(numbers, _run(job, device), strict=True))
    return [found[number] for number in range(len(specs))]


def _run(job: Job, device: str) -> list[Trained]:
    """Run the processes of a job. The runner of checks ends what hangs."""
    file = job.folder / f"job-{job.port}"
    file.write_bytes(pickle.dumps(job))
    command = [sys.executable, "-c", "from verification.ranks import main; main()", str(file)]
    gpus = [_gpu(rank) if device == "cuda" else "" for rank in range(job.ranks)]
    processes = [
        subprocess.Popen([*command, str(rank)], env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu})
        for rank, gpu in enumerate(gpus)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise BoundError(f"the processes of {job.ranks} ranks ended with {codes}; their output has the errors")
    reports: list[Trained] = pickle.loads((job.folder / f"trained-{job.port}").read_bytes())
    return reports


def _gpu(rank: int) -> str:
    """Return the GPU of a rank, among those that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[rank] if visible else str(rank)


def _train(job: Job, spec: LearnerSpec, rank: int) -> Trained:
    before_bytes = held(spec.device)
    learner = PolicyLearner(spec, rank, job.ranks, "127.0.0.1", job.port)
    before, reports, peaks, held_bytes = _logprobs(learner), [], [0], 0
    for batch in job.batches:
        rows = _scored(learner, batch)
        with Peak(spec.device) as peak:
            reports.append(learner.step(rows))
        if held_bytes:
            peaks.append(peak.nbytes)
        held_bytes = held(spec.device) - before_bytes
    losses, norms = (tuple(getattr(report, name) for report in reports) for name in ("loss", "grad_norm"))
    parameters = sum(tensor.numel() for _, tensor in learner.shapes())
    return Trained(losses, norms, before, _logprobs(learner), held_bytes, max(peaks), parameters)


def _scored(learner: PolicyLearner, batch: Batch) -> Batch:
    """Return the batch with what its algorithm needs; a critic's returns are its values and the advantages."""
    return [
        row if (values := row.columns.values) is None else row.with_columns(returns=values + row.columns.advantages)
        for row in scored(learner, batch)
    ]


def _logprobs(learner: PolicyLearner) -> tuple[float, ...]:
    return tuple(value for row in learner.logprobs(TEXT) for value in row)


def main() -> None:
    """Run one rank of a job."""
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    rank, found = int(sys.argv[2]), []
    for spec in job.specs:
        threads = 1 if spec.device == "cpu" else 0
        found.append(_train(job, replace(spec, learner=spec.learner.model_copy(update={"threads": threads})), rank))
        gc.collect()
        torch.cuda.empty_cache()
    if rank == 0:
        (job.folder / f"trained-{job.port}").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()

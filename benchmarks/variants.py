"""Learner seconds, memory and publication of PPO and LoRA against GRPO that trains all weights, on one batch.

python -m benchmarks.variants [--model FOLDER] [--rounds 3] [--shape 16x8x35] [--rank 16] [--run RUN]; the last line is
the figures as JSON. Each variant has a process of its own, and they take turns. Every group of the batch is mixed, so
that no sequence is skipped. A step of PPO computes the values before, and updates policy and critic, each with its
optimizer; the critic is as large as the policy. Then GRPO trains the batch in four, two and one micro-batch: memory per
token is the slope of the peak over the tokens of a micro-batch. With `--run`, PPO and GRPO train stored batches of a
run of that model instead, each with its own credit: there GRPO skips the groups without a signal, which PPO trains.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as in a run's learner

import numpy as np
import torch
from transformers import AutoConfig

from agentrl.algorithms.driver import assign
from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import TrainSequence, attach, samples_of, train_sequences
from agentrl.cluster.ports import free_port
from agentrl.config.models import locate
from agentrl.config.schema import AlgorithmSection, LearnerSection, LoraSection
from agentrl.learner.batch import build_trees
from agentrl.learner.memory import keep_freed_memory
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from agentrl.metrics.trackers import read_steps
from agentrl.records.folder import RunFolder
from agentrl.training.replay import ReplayPlan, stored_batches
from agentrl.types import Group
from benchmarks.arms import Arm, threads
from benchmarks.learner import LR, Shape, samples
from benchmarks.memory import forget_peak, peak_bytes
from benchmarks.timing import alternated, column, last_line, median

MIB = 1 << 20
SIDES = ("grpo", "ppo")


class Variant:
    """A learner on one batch."""

    def __init__(self, spec: LearnerSpec, batch: list[TrainSequence], stored: Sequence[Sequence[Group]] = ()) -> None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        keep_freed_memory()
        self._learner = PolicyLearner(spec, 0, 1, "127.0.0.1", free_port())
        rows = self._learner.logprobs([sequence.ids.tolist() for sequence in batch])
        self._batch = [
            sequence.with_columns(sampler=np.array([0.0, *row], dtype=np.float32)[sequence.mask])
            for sequence, row in zip(batch, rows, strict=True)
        ]
        self._has_critic = spec.algorithm.name == "ppo"
        self._algorithm, self._stored = make_algorithm(spec.algorithm, spec.run), cycle(stored)

    def step(self) -> dict[str, float]:
        """Train once; `peak_mib` is the most resident memory of the process during the step."""
        forget_peak()
        started = time.perf_counter()
        report = self._learner.step(self._scored() if self._has_critic else self._batch)
        return {
            "seconds": time.perf_counter() - started,
            "peak_mib": peak_bytes() / MIB,
            "grad_norm": report.grad_norm,
        }

    def _scored(self) -> list[TrainSequence]:
        values = self._learner.score(self._batch, ["values"])["values"]
        return [
            row.with_columns(values=values[index], returns=values[index] + row.columns.advantages)
            for index, row in enumerate(self._batch)
        ]

    def real_step(self) -> dict[str, float]:
        """Credit and train the next stored batch."""
        samples, started = samples_of(next(self._stored)), time.perf_counter()
        if columns := sorted(self._algorithm.requirements.columns):
            scores = self._learner.score(train_sequences(samples), columns)
            attach(samples, {column: [rows[index] for index in sorted(rows)] for column, rows in scores.items()})
        assign(self._algorithm, samples)
        self._learner.step(train_sequences(samples))
        return {"seconds": time.perf_counter() - started}

    def publication(self) -> dict[str, float]:
        """Stage the weights for the engines once."""
        started = time.perf_counter()
        self._learner.begin_staging()
        nbytes = 0
        while (bucket := self._learner.stage_next()) is not None:
            nbytes += bucket.nbytes
            bucket.discard()
        return {"seconds": time.perf_counter() - started, "mib": nbytes / MIB}


def variants(model: Path, rank: int) -> dict[str, LearnerSpec]:
    """Return the learner of each variant."""
    plain = LearnerSpec(model, 100, learner=LearnerSection(lr=LR, schedule="constant"))
    adapters = LoraSection(rank=rank, alpha=2.0 * rank, publish="adapter")
    return {
        "grpo": plain,
        "ppo": replace(plain, algorithm=AlgorithmSection(name="ppo")),
        "lora": replace(plain, lora=adapters),
        "lora merged": replace(plain, lora=adapters.model_copy(update={"publish": "merged"})),
    }


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The variants in turns, then the slope of the memory."""
    specs, batch = _inputs(args)
    arms = {name: Arm(Variant, spec, batch, env=threads()) for name, spec in specs.items()}
    steps = {name: (lambda arm=arm: arm.acall("step")) for name, arm in arms.items()}
    stages = {name: (lambda arm=arm: arm.acall("publication")) for name, arm in arms.items() if name != "ppo"}
    taken, published = await alternated(args.rounds, steps), await alternated(args.rounds, stages)
    for arm in arms.values():
        arm.close()
    return {
        "shape": asdict(args.shape),
        "rounds": args.rounds,
        "rank": args.rank,
        "ppo_to_grpo": _ratio(taken["ppo"], taken["grpo"]),
        "lora_to_grpo": _ratio(taken["lora"], taken["grpo"]),
        "seconds": {name: column(rows, "seconds") for name, rows in taken.items()},
        "peak_mib": {name: column(rows, "peak_mib") for name, rows in taken.items()},
        "stage_s": {name: column(rows, "seconds") for name, rows in published.items()},
        "published_mib": {name: column(rows, "mib") for name, rows in published.items()},
        "kib_per_token": _kib_per_token(specs["grpo"], batch),
    }


async def measure_run(args: argparse.Namespace) -> dict[str, Any]:
    """PPO's seconds over stored batches of a run to GRPO's; a warm-up takes the last of them."""
    specs, batch = _inputs(args)
    stored = _stored(args.run, args.batches)
    turned = [*stored[-1:], *stored[:-1]]
    arms = {name: Arm(Variant, specs[name], batch, turned, env=threads()) for name in SIDES}
    steps = {name: (lambda arm=arm: arm.acall("real_step")) for name, arm in arms.items()}
    taken = await alternated(len(stored), steps)
    for arm in arms.values():
        arm.close()
    seconds = {name: [row["seconds"] for row in rows] for name, rows in taken.items()}
    ratio = sum(seconds["ppo"]) / sum(seconds["grpo"])
    return {"ppo_to_grpo_real": ratio, "real_batches": len(stored), "seconds": seconds}


def _inputs(args: argparse.Namespace) -> tuple[dict[str, LearnerSpec], list[TrainSequence]]:
    """Return the learner of each variant, and the batch."""
    model = locate(args.model)
    return variants(model, args.rank), samples(AutoConfig.from_pretrained(model).vocab_size, args.shape)


def _stored(run: Path, count: int) -> list[list[Group]]:
    """Return the groups of `count` steps of a run, from the first to the last."""
    folder = RunFolder(run)
    steps = read_steps(folder)
    picked = {round(index * (len(steps) - 1) / max(1, count - 1)) for index in range(min(count, len(steps)))}
    return list(stored_batches(folder, ReplayPlan(0, tuple(steps[index] for index in sorted(picked)))))


def _ratio(rows: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    return median([row["seconds"] / other["seconds"] for row, other in zip(rows, others, strict=True)])


def _kib_per_token(spec: LearnerSpec, batch: list[TrainSequence]) -> float:
    """Return the slope of the peak memory of a step over the tokens of a micro-batch, from the second step of each."""
    tokens = sum(tree.tokens for tree in build_trees(batch, range(len(batch))))
    bounds, peaks = (tokens // 4, tokens // 2, tokens), []
    for bound in bounds:
        section = spec.learner.model_copy(update={"micro_batch_tokens": bound})
        arm = Arm(Variant, replace(spec, learner=section), batch, env=threads())
        arm.call("step")
        peaks.append(arm.call("step")["peak_mib"] * 1024)
        arm.close()
        print(f"micro-batches of {bound} tokens: peak {peaks[-1] / 1024:.0f} MiB", flush=True)
    return statistics.linear_regression(bounds, peaks).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="model folder; default: the embedded SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--shape", type=Shape.of, default=Shape(16, 8, 35), metavar="GROUPSxMEMBERSxPROMPT", help="the batch"
    )
    parser.add_argument("--rank", type=int, default=16, help="rank of the adapters")
    parser.add_argument("--run", type=Path, help="run whose batches PPO and GRPO train instead")
    parser.add_argument("--batches", type=int, default=8, help="number of its batches")
    args = parser.parse_args()
    print(last_line("variants", asyncio.run((measure_run if args.run else measure)(args))))


if __name__ == "__main__":
    main()

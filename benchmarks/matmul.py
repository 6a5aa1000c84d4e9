"""Share of the machine's rate of bfloat16 matrix products that a step of the learner reaches, and where its time goes.

python -m benchmarks.matmul [--model FOLDER] [--rounds 3] [--shape 8x8x35] [--give-back] [--top 12]; the last line is
the figures as JSON. The rate of the machine is that of one product with the shapes of the model's widest layer and as
many rows as a micro-batch of the batch has tokens. Operations of a step are those of its matrix products and attention,
counted by torch; both are measured in turns, in one process. The profile is of one more step, by time of each kernel
itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as in a run's learner

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from agentrl.cluster.ports import free_port
from agentrl.config.models import locate
from agentrl.config.schema import LearnerSection
from agentrl.learner.batch import build_trees
from agentrl.learner.memory import keep_freed_memory
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from benchmarks.learner import LR, Shape, samples
from benchmarks.timing import alternated, last_line, median

PRODUCTS = 20
"""Matrix products of each kind in one measurement of the machine's rate."""


class Machine:
    """Products of [rows, hidden] by [hidden, intermediate], and the two products of their gradients."""

    def __init__(self, rows: int, hidden: int, intermediate: int) -> None:
        self._x_ND = torch.randn(rows, hidden).bfloat16()
        self._w_DM = torch.randn(hidden, intermediate).bfloat16()
        self._g_NM = torch.randn(rows, intermediate).bfloat16()
        self.operations = 3 * 2 * rows * hidden * intermediate * PRODUCTS

    def run(self) -> None:
        """Multiply."""
        for _ in range(PRODUCTS):
            self._x_ND @ self._w_DM
            self._g_NM @ self._w_DM.T
            self._x_ND.T @ self._g_NM


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The learner's step and the machine's products in turns, then the profile."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if not args.give_back:
        keep_freed_memory()
    model = locate(args.model)
    spec = LearnerSpec(model, 100, learner=LearnerSection(lr=LR, schedule="constant"))
    learner = PolicyLearner(spec, 0, 1, "127.0.0.1", free_port())
    shape = AutoConfig.from_pretrained(model)
    batch = samples(shape.vocab_size, args.shape)
    tokens = sum(tree.tokens for tree in build_trees(batch, range(len(batch))))
    machine = Machine(min(tokens, spec.micro_batch_tokens), shape.hidden_size, shape.intermediate_size)
    with FlopCounterMode(display=False) as counter:
        learner.step(batch)
    operations = counter.get_total_flops()

    async def step() -> dict[str, float]:
        started = time.perf_counter()
        learner.step(batch)
        return {"gflops": operations / (time.perf_counter() - started) / 1e9}

    async def products() -> dict[str, float]:
        started = time.perf_counter()
        machine.run()
        return {"gflops": machine.operations / (time.perf_counter() - started) / 1e9}

    taken = await alternated(args.rounds, {"step": step, "products": products})
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        learner.step(batch)
    learner.close()
    shares = [a["gflops"] / b["gflops"] for a, b in zip(taken["step"], taken["products"], strict=True)]
    return {
        "rounds": args.rounds,
        "tokens": tokens,
        "gflop_of_a_step": operations / 1e9,
        "step_gflops": median([row["gflops"] for row in taken["step"]]),
        "machine_gflops": median([row["gflops"] for row in taken["products"]]),
        "share": median(shares),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
        "profile": _top(trace, args.top),
    }


def _top(trace: profile, count: int) -> dict[str, float]:
    """The share of each of the `count` costliest kernels in the CPU time of all."""
    rows = trace.key_averages()
    total = sum(row.self_cpu_time_total for row in rows)
    costliest = sorted(rows, key=lambda row: row.self_cpu_time_total, reverse=True)[:count]
    return {row.key: row.self_cpu_time_total / total for row in costliest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="model folder; default: the embedded SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", type=Shape.of, default=Shape(), metavar="GROUPSxMEMBERSxPROMPT", help="the batch")
    parser.add_argument("--give-back", action="store_true", help="return freed memory to the kernel, as C programs do")
    parser.add_argument("--top", type=int, default=12, help="kernels to print")
    print(last_line("matmul", asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()

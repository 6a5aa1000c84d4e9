"""Trained tokens a second of the learner, as a ratio to a bare padded PyTorch loop on the same samples, interleaved.

python benchmarks/learner.py MODEL_FOLDER [--rounds 5] [--dtype bfloat16] [--shapes 16x4x32 ...]; the last line is
the figures as JSON, with several shapes one line for each.
The bare loop is what people write by hand: float32 parameters under bfloat16 autocast, SDPA, right padding, full
logits, fused AdamW, and the micro-batch size that was fastest here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as in a run's learner, and here for both sides

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoModelForCausalLM

from agentrl.algorithms.sample import Columns, TrainSequence, plain_sequence
from agentrl.cluster.ports import free_port
from agentrl.config.schema import LearnerSection
from agentrl.learner.memory import keep_freed_memory
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from agentrl.types import SampleId

COMPLETION, LR = 48, 1e-6


@dataclass(frozen=True)
class Shape:
    """A batch: `groups` prompts of about `prompt` tokens, with `members` completions of 4-48 tokens each."""

    groups: int = 8
    members: int = 8
    prompt: int = 35

    @classmethod
    def of(cls, text: str) -> Shape:
        """Read `GROUPSxMEMBERSxPROMPT`."""
        return cls(*map(int, text.split("x")))


def samples(vocabulary: int, shape: Shape = Shape(), seed: int = 0) -> list[TrainSequence]:
    """Return a batch of that shape, with advantages."""
    rng = random.Random(seed)
    batch = []
    for group in range(shape.groups):
        prompt = [rng.randrange(10, vocabulary) for _ in range(shape.prompt + rng.randint(-5, 5))]
        for member in range(shape.members):
            answer = [rng.randrange(10, vocabulary) for _ in range(rng.randint(4, COMPLETION))]
            one = plain_sequence(SampleId(group, member), prompt + answer, prompt=len(prompt))
            advantages = np.full(len(answer), rng.gauss(0, 1), dtype=np.float32)
            ones = np.ones(len(answer), dtype=np.float32)
            batch.append(replace(one, columns=Columns(-10 * ones, advantages, ones), share=float(len(answer))))
    return batch


def over_all_tokens(sequence: TrainSequence) -> NDArray[np.float32]:
    """Advantages of all tokens, 0 on context."""
    out = np.zeros(len(sequence.ids), dtype=np.float32)
    out[sequence.mask] = sequence.columns.advantages
    return out


class Bare:
    """A hand-written training loop."""

    def __init__(self, folder: Path, dtype: torch.dtype, micro_batch: int) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=0.0, fused=True)
        self.dtype, self.micro_batch = dtype, micro_batch

    def step(self, batch: list[TrainSequence]) -> float:
        total = sum(s.actions for s in batch)
        for start in range(0, len(batch), self.micro_batch):
            part = batch[start : start + self.micro_batch]
            ids, seen, mask, advantages = (
                torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
                for rows in (
                    [s.ids.astype(np.int64) for s in part],
                    [np.ones_like(s.ids) for s in part],
                    [s.mask for s in part],
                    [over_all_tokens(s) for s in part],
                )
            )
            with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
                logits = self.model(input_ids=ids, attention_mask=seen, use_cache=False).logits
            losses = functional.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
            )
            weights = (mask * advantages)[:, 1:].flatten()
            (losses @ weights / total).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--bare-micro-batch", type=int, default=16)
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=Shape.of,
        default=[Shape()],
        metavar="GROUPSxMEMBERSxPROMPT",
        help="batches to measure, such as 64x1x32 16x4x32 4x16x32 16x1x512 4x4x512 1x16x512",
    )
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    keep_freed_memory()  # for both sides, which share this process
    section = LearnerSection(lr=LR, schedule="constant")
    spec = LearnerSpec(args.model, 100, dtype=args.dtype, learner=section)
    learner = PolicyLearner(spec, 0, 1, "127.0.0.1", free_port())
    bare = Bare(args.model, spec.compute, args.bare_micro_batch)
    for shape in args.shapes:
        print(json.dumps({"benchmark": "learner", "rounds": args.rounds} | measured(learner, bare, shape, args.rounds)))
    learner.close()


def measured(learner: PolicyLearner, bare: Bare, shape: Shape, rounds: int) -> dict[str, Any]:
    """Return tokens per second of both sides and their ratio, on one batch; the first round warms up."""
    batch = samples(bare.model.config.vocab_size, shape)
    # The learner's own logprobs as the sampler's: the importance weight is 1, so both losses are the same.
    rows = learner.logprobs([s.ids.tolist() for s in batch])
    batch = [
        s.with_columns(sampler=np.array([0.0, *row], dtype=np.float32)[s.mask])
        for s, row in zip(batch, rows, strict=True)
    ]
    tokens = sum(s.actions for s in batch)
    seconds: dict[str, list[float]] = {"learner": [], "bare": []}
    cpu: dict[str, list[float]] = {"learner": [], "bare": []}
    for round_ in range(rounds + 1):
        for name, run in (("learner", learner.step), ("bare", bare.step)):
            started, started_cpu = time.perf_counter(), time.process_time()
            result = run(batch)
            elapsed, elapsed_cpu = time.perf_counter() - started, time.process_time() - started_cpu
            norm = getattr(result, "grad_norm", result)
            print(f"{name:8} {elapsed:6.2f} s  {elapsed_cpu:6.2f} CPU s  gradient norm {norm:.4f}", flush=True)
            if round_:
                seconds[name].append(elapsed)
                cpu[name].append(elapsed_cpu)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return asdict(shape) | {
        "tokens": tokens,
        "learner_tokens_per_s": round(tokens / medians["learner"], 1),
        "bare_tokens_per_s": round(tokens / medians["bare"], 1),
        "ratio": round(medians["bare"] / medians["learner"], 3),
        "ratio_of_cpu_seconds": round(statistics.median(cpu["bare"]) / statistics.median(cpu["learner"]), 3),
    }


if __name__ == "__main__":
    main()

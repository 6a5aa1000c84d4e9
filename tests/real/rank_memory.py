"""The peak memory of learner ranks: `python -m tests.real.rank_memory MODEL DTYPE RANKS STAGE` prints it as JSON.

Threads allocate in an order of their own, so that one peak is up to a quarter above another: a median says what a rank
takes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import deepspeed  # noqa: F401 (part of the baseline, as everything that a rank imports)
import numpy as np
import torch

from agentrl.algorithms.sample import TrainSequence
from agentrl.cluster.ports import free_port
from agentrl.config.schema import LearnerSection
from agentrl.learner.memory import keep_freed_memory
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.spec import LearnerSpec
from agentrl.types import SampleId
from tests.real.engine_memory import status
from tests.unit.learner.synthetic import sequence

TOKENS, PROMPT, MEMBERS = 128, 16, 4
"""Of a micro-batch, which one group of that prompt fills."""
PROCESSES = 3


@dataclass(frozen=True)
class Peak:
    """Bytes above the baseline after imports, over some updates."""

    nbytes: int
    updates: int


def batch(vocabulary: int, groups: int) -> list[TrainSequence]:
    """Groups that fill a micro-batch each."""
    rng = np.random.default_rng(0)
    answer = (TOKENS - PROMPT) // MEMBERS + 1  # the last token of a sequence predicts nothing
    out = []
    for group in range(groups):
        prompt = rng.integers(10, vocabulary, PROMPT).tolist()
        for member in range(MEMBERS):
            ids = prompt + rng.integers(10, vocabulary, answer).tolist()
            mask = [0] * PROMPT + [1] * answer
            advantages = rng.normal(size=len(ids)).tolist()
            out.append(sequence(SampleId(group, member), ids, mask, [-10.0] * len(ids), advantages))
    return out


@dataclass(frozen=True)
class Job:
    """What the ranks train; they meet at a port of this machine."""

    model: Path
    dtype: str
    ranks: int
    stage: int
    port: int

    def peak(self, rank: int, updates: int = 3) -> Peak:
        """Train some batches; the peak of all of them, because the optimizer's state comes with the first."""
        torch.set_num_threads(2)
        keep_freed_memory()
        sizes = {"ranks": self.ranks, "zero_stage": self.stage, "micro_batch_tokens": TOKENS}
        section = LearnerSection.model_validate({"lr": 1e-6, "schedule": "constant", **sizes})
        spec = LearnerSpec(self.model, 10, dtype=self.dtype, learner=section)
        vocabulary = json.loads((self.model / "config.json").read_text())["vocab_size"]
        baseline = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # see proc(5): resets VmHWM
        learner = PolicyLearner(spec, rank, self.ranks, "127.0.0.1", self.port)
        steps = [learner.step(batch(vocabulary, 2 * self.ranks)).optimizer_steps for _ in range(updates)]
        return Peak(status("VmHWM") - baseline, sum(steps))


def forked(job: Job) -> None:
    """Run the ranks as processes that share what is imported; no thread runs yet."""
    children = []
    for rank in range(job.ranks):
        if (child := os.fork()) == 0:
            os.write(1, f"{json.dumps(asdict(job.peak(rank)))}\n".encode())  # a line at once, beside other ranks
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] != 0 for child in children):
        sys.exit("a process failed")


def main(model: str, dtype: str, ranks: str, stage: str) -> None:
    """Run the ranks some times, one after another."""
    for _ in range(PROCESSES):
        forked(Job(Path(model), dtype, int(ranks), int(stage), free_port()))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Seconds a step against TRL's GRPOTrainer: the same model, tasks, batch and loss, in turns.

python -m benchmarks.versus_trl [--model FOLDER] [--rounds 3]; the last line is the figures as JSON. First both compute
loss and gradient norm of one fixed float32 batch. Then steps alternate: a whole step of a run (update, publication,
proof, sampling of the next batch), a step of TRL, raw sampling of our batch by vLLM, and a bare PyTorch step on it: the
last two together are the limit of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Columns, TrainSequence, plain_sequence, samples_of, train_sequences
from agentrl.cluster.ports import free_port
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import vllm_spec
from agentrl.config.models import locate
from agentrl.config.schema import CheckpointSection, Config, EvalSection, LearnerSection
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.env import EnvDriver
from agentrl.records.folder import RunFolder
from agentrl.report.terminal import TerminalView
from agentrl.training.inputs import RunInputs
from agentrl.training.session import Session
from agentrl.training.setup import open_run
from agentrl.types import Batch, SampleId
from benchmarks.arms import Arm, threads
from benchmarks.learner import Bare
from benchmarks.raw import RawBatch
from benchmarks.rival import MISSING, Fixed, Question, Rival, RivalLoss, RivalSpec
from benchmarks.rollout import config_of, flags, raw_arm, raw_requests, stop_tokens
from benchmarks.timing import alternated, column, last_line, median

TOLERANCE = 1e-5
TASKS = 512


# --------------------------------------------------------------------------------------------------------------
# The same loss.


class OurLoss:
    """agentrl's loss and gradient on a fixed batch."""

    def __init__(self, model: Path) -> None:
        from agentrl.learner.policy_learner import PolicyLearner
        from agentrl.learner.spec import LearnerSpec

        spec = LearnerSpec(model, 100, dtype="float32", learner=LearnerSection(lr=1e-9, schedule="constant"))
        self._learner = PolicyLearner(spec, 0, 1, "127.0.0.1", free_port())

    def loss_and_norm(self, batch: Fixed) -> tuple[float, float]:
        """(loss, gradient norm) of one optimizer step, before clipping; the sampler is the learner itself."""
        rows = zip(batch.prompts, batch.completions, batch.advantages, strict=True)
        sequences = []
        for number, (prompt, completion, advantage) in enumerate(rows):
            [known] = self._learner.logprobs([[*prompt, *completion]])
            sampler = np.array(known[len(prompt) - 1 :], dtype=np.float32)
            columns = Columns(sampler, np.full_like(sampler, advantage), np.ones_like(sampler))
            plain = plain_sequence(SampleId(0, number), [*prompt, *completion], prompt=len(prompt))
            sequences.append(replace(plain, columns=columns, share=float(plain.actions)))
        report = self._learner.step(sequences)
        return report.loss, report.grad_norm


def fixed_batch(vocabulary: int) -> Fixed:
    """16 samples of uneven lengths."""
    rng = random.Random(0)

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(10, vocabulary) for _ in range(rng.randint(low, high)))

    prompt = some(20, 40)
    return Fixed((prompt,) * 16, tuple(some(4, 48) for _ in range(16)), tuple(rng.gauss(0, 1) for _ in range(16)))


def compared(model: Path, out: Path) -> dict[str, Any]:
    """Loss and gradient norm by both; raises ValueError when they differ by more than 1e-5 of their size."""
    batch = fixed_batch(json.loads((model / "config.json").read_text())["vocab_size"])
    spec = RivalSpec(model, (Question("1 + 1", "2"),), 1, 16, 48, out, weights="float32", is_bf16=False)
    found = {}
    for name, factory, argument in (("agentrl", OurLoss, model), ("trl", RivalLoss, spec)):
        arm = Arm(factory, argument, env=threads())
        found[name] = arm.call("loss_and_norm", batch)
        arm.close()
    (loss, norm), (their_loss, their_norm) = found["agentrl"], found["trl"]
    off = max(abs(loss - their_loss) / max(1.0, abs(their_loss)), abs(norm - their_norm) / their_norm)
    print(f"loss and gradient norm: agentrl {loss:.8f} {norm:.8f}, trl {their_loss:.8f} {their_norm:.8f}", flush=True)
    if off > TOLERANCE:
        raise ValueError(f"the two losses differ by {off:.2g} of their size: they do not compute the same")
    return {"loss": loss, "trl_loss": their_loss, "grad_norm": norm, "trl_grad_norm": their_norm, "difference": off}


# --------------------------------------------------------------------------------------------------------------
# The same step.


class BareStep:
    """A hand-written training loop, on the sequences of our batch."""

    def __init__(self, model: Path, micro_batch: int) -> None:
        import torch

        self._bare = Bare(model, torch.bfloat16, micro_batch)

    def step(self, batch: list[TrainSequence]) -> float:
        """One optimizer step."""
        return self._bare.step(batch)


class Ours:
    """A run that pauses between steps: a step is an update, its publication, and sampling of the next batch."""

    def __init__(self, run: Session) -> None:
        self.run = run
        self.batch: Batch | None = None

    async def step(self) -> dict[str, float]:
        """One step; nothing is in flight when it returns."""
        if self.batch is None:
            self.run.scheduler.start()
            self.batch = await self.run.sample()
        before = self.batch
        learned = await self.run.update(before)
        self.batch = await self.run.sample()
        self.run.record(before, learned)
        return {
            "tokens": float(sum(t.action_tokens for g in self.batch.groups for t in g.trajectories)),
            "learner_s": max(report.seconds for report in learned.reports),
        }


@asynccontextmanager
async def training(config: Config, out: Path) -> AsyncIterator[Ours]:
    """A run without evaluation and checkpoints."""
    async with open_run(config, RunInputs.of(config), RunFolder(out), Stop(), TerminalView(config.steps), None) as run:
        yield Ours(run)
        await run.scheduler.stop()


def questions() -> tuple[Question, ...]:
    """Level 1 of envs/math, in the order of its tasks."""
    from agentrl_math import MathEnv
    from agentrl_math.env import MathConfig

    async def read() -> tuple[Question, ...]:
        driver = EnvDriver(MathEnv(MathConfig()))
        tasks = [await driver.task("train", index, 0) for index in range(TASKS)]
        return tuple(Question(task.data.question, task.data.answer) for task in tasks)

    return asyncio.run(read())


async def race(args: argparse.Namespace, config: Config, model: Path, spec: RivalSpec, out: Path) -> dict[str, Any]:
    """All arms in turns."""
    with ExitStack() as stack:
        trl, bare = Arm(Rival, spec, env=threads()), Arm(BareStep, model, 16, env=threads())
        engine: VllmSpec = vllm_spec(config, model)
        raw = raw_arm(engine)
        for arm in (trl, bare, raw):
            stack.callback(arm.close)
        stop = stop_tokens(model)
        async with training(config, out) as ours:

            async def trl_step() -> dict[str, float]:
                done: dict[str, float] = await trl.acall("step")
                return done

            async def sample() -> dict[str, float]:
                assert ours.batch is not None, "our arm comes first"
                trajectories = [t for group in ours.batch.groups for t in group.trajectories]
                requests = raw_requests(trajectories, config.seed)
                done: RawBatch = await raw.acall("generate", requests, args.max_tokens, stop)
                return {"seconds": done.seconds, "tokens": float(done.tokens)}

            async def step() -> dict[str, float]:
                assert ours.batch is not None, "our arm comes first"
                samples = samples_of(ours.batch.groups)
                assign(ours.run.algorithm, samples)
                await bare.acall("step", train_sequences(samples))
                return {}

            return await alternated(
                args.rounds, {"agentrl": ours.step, "trl": trl_step, "raw sampling": sample, "bare step": step}
            )


def figures_of(taken: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians and ratios of the same round: to raw sampling and the bare step, and to our parts without the rest.

    The parts are raw sampling and the learner's step as the rank that takes it measures it.
    """
    ours, trl = taken["agentrl"], taken["trl"]
    limits = [a["seconds"] + b["seconds"] for a, b in zip(taken["raw sampling"], taken["bare step"], strict=True)]
    faster = [b["seconds"] / a["seconds"] for a, b in zip(ours, trl, strict=True)]
    limit = [b["seconds"] / most for b, most in zip(trl, limits, strict=True)]
    share = [most / a["seconds"] for a, most in zip(ours, limits, strict=True)]
    parts = [a["seconds"] + b["learner_s"] for a, b in zip(taken["raw sampling"], ours, strict=True)]
    return {
        "times_faster": median(faster),
        "times_faster_least": min(faster),
        "limit_times_faster": median(limit),
        "share_of_limit": median(share),
        "parts_times_faster": median([b["seconds"] / most for b, most in zip(trl, parts, strict=True)]),
        "share_of_parts": median([most / a["seconds"] for a, most in zip(ours, parts, strict=True)]),
        "learner_s": column(ours, "learner_s"),
        "seconds": {name: column(rows, "seconds") for name, rows in taken.items()},
        "tokens": column(ours, "tokens"),
        "trl_tokens_per_sample": column(trl, "mean_length"),
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The comparison of losses, then the race."""
    config = config_of(args).model_copy(update={"eval": EvalSection(tasks=0), "checkpoint": CheckpointSection(every=0)})
    model = locate(config.model.name)
    with tempfile.TemporaryDirectory() as folder:
        same = {} if args.skip_loss else compared(model, Path(folder))
        spec = RivalSpec(
            model, questions(), args.prompts, args.group_size, args.max_tokens, Path(folder, "trl"),
            lr=config.learner.lr, weights=args.trl_weights,
        )  # fmt: skip
        out = Path(folder, "run")
        out.mkdir()
        taken = asyncio.run(race(args, config, model, spec, out))
    return {
        "batch": f"{args.prompts} x {args.group_size} x {args.max_tokens}",
        "rounds": args.rounds,
        "trl_weights": args.trl_weights,
        "fixed_batch": same,
        **figures_of(taken),
    }


def main() -> None:
    parser = flags(__doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--trl-weights", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--skip-loss", action="store_true", help="do not compare the losses first")
    args = parser.parse_args()
    if importlib.util.find_spec("trl") is None or importlib.util.find_spec("datasets") is None:
        sys.exit(MISSING)
    print(last_line("trl", measure(args)))


if __name__ == "__main__":
    main()

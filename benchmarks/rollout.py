"""Sampled tokens per second of the whole rollout path, and their ratio to raw `LLM.generate`, in turns.

python -m benchmarks.rollout [--model FOLDER] [--rounds 5]; the last line is the figures as JSON. The path is that of a
run: engine, worker and their actors, scheduler, ledger and trajectory store. The raw side gets the same prompts, seeds
and settings as the preceding round, in a process of its own, while the other side idles.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentrl.cluster.actors import Actors
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import vllm_spec
from agentrl.config.machine import detect
from agentrl.config.models import locate
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config, EngineSection, EnvSection, ModelSection, RolloutSection
from agentrl.engine.vllm.settings import VllmSpec, environment
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.report.terminal import TerminalView
from agentrl.rollout.scheduler import Scheduler
from agentrl.rollout.task_order import stable_hash
from agentrl.training.inputs import RunInputs, algorithm_of
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.training.setup import open_evaluation
from agentrl.types import TRAIN, Batch, Trajectory, Version
from benchmarks.arms import Arm
from benchmarks.raw import RawBatch, RawRequest, RawVllm
from benchmarks.timing import alternated, column, cpu_seconds, last_line, median

VERSION = Version(0, 0)
BATCH_S = 600.0


def raw_arm(spec: VllmSpec, is_in_process: bool = True) -> Arm:
    """Start raw vLLM with the environment variables of an engine."""
    variables = environment(spec, sorted(os.sched_getaffinity(0)))
    return Arm(RawVllm, spec, env={**variables, "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if is_in_process else "1"})


def raw_requests(trajectories: Sequence[Trajectory], seed: int) -> list[RawRequest]:
    """Return the first turn of each trajectory as the engine got it."""
    return [
        RawRequest(
            next(t.segments).ids, stable_hash(seed, t.split, t.task_index, t.sample.member, 0)
        )
        for t in trajectories
    ]  # fmt: skip


class RolloutPath:
    """The rollout path of a run, one batch at a time."""

    def __init__(self, config: Config, team: Actors, journal: RunJournal, tasks: dict[str, int | None]) -> None:
        settings = rollout_settings(config, algorithm_of(config), env_plans(config, tasks))
        self.scheduler = Scheduler(settings, team.workers.dispatch, journal, VERSION)
        self._is_begun = False
        self.last: tuple[Trajectory, ...] = ()

    async def batch(self) -> Batch:
        """Dispatch a batch and wait for all of it."""
        if self._is_begun:
            self.scheduler.trained(VERSION)
        else:
            self.scheduler.start()
        self._is_begun = True
        batch = await self.scheduler.next_batch(BATCH_S)
        self.last = tuple(t for group in batch.groups for t in group.trajectories)
        return batch


@asynccontextmanager
async def path_of(config: Config, out: Path) -> AsyncIterator[RolloutPath]:
    """Start a whole rollout path that serves the model's own weights."""
    folder = RunFolder(out)
    journal = RunJournal(folder)
    journal.ledger.begin_incarnation()
    try:
        async with open_evaluation(config, RunInputs.of(config), folder, Stop(), TerminalView(1), TRAIN) as (team, _):
            path = RolloutPath(config, team, journal, await team.workers.task_count("train"))
            yield path
            await path.scheduler.stop()
    finally:
        journal.close()


def config_of(args: argparse.Namespace) -> Config:
    """Return the resolved configuration of the flags."""
    config = Config(
        steps=1 << 20,
        env=(EnvSection(name="math"),),
        model=ModelSection(name=args.model or str(locate("")), max_context=512, dtype=args.dtype),
        engine=EngineSection(kv_cache_gib=1.0),
        rollout=RolloutSection(prompts=args.prompts, group_size=args.group_size, max_tokens=args.max_tokens),
    )
    return resolve_run(config, detect())


def flags(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags of every benchmark that samples."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="", help="model folder; default: the embedded SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    return parser


async def measure(args: argparse.Namespace) -> dict[str, object]:
    """Measure both sides in turns; the ratio is that of their medians."""
    config = config_of(args)
    model = locate(config.model.name)
    raw = raw_arm(vllm_spec(config, model))
    same: list[float] = []
    stop: tuple[int, ...] = ()
    try:
        with tempfile.TemporaryDirectory() as out:
            async with path_of(config, Path(out)) as path:
                stop = stop_tokens(model)

                async def ours() -> dict[str, float]:
                    before = cpu_seconds()
                    batch = await path.batch()
                    spent = sum(v - before.get(pid, 0.0) for pid, v in cpu_seconds().items())
                    return {"tokens": sum(t.action_tokens for g in batch.groups for t in g.trajectories), "cpu": spent}

                async def theirs(is_bare: bool) -> dict[str, float]:
                    requests = raw_requests(path.last, config.seed)
                    before = cpu_seconds()
                    done: RawBatch = await raw.acall("generate", requests, args.max_tokens, stop, is_bare)
                    spent = sum(v - before.get(pid, 0.0) for pid, v in cpu_seconds().items())
                    if not is_bare:
                        same.append(alike(path.last, done))
                    return {"seconds": done.seconds, "tokens": done.tokens, "cpu": spent}

                taken = await alternated(
                    args.rounds, {"path": ours, "raw": lambda: theirs(False), "raw bare": lambda: theirs(True)}
                )
    finally:
        raw.close()
    rate = {name: median([r["tokens"] / r["seconds"] for r in rows]) for name, rows in taken.items()}
    ratios = [
        (a["tokens"] / a["seconds"]) / (b["tokens"] / b["seconds"])
        for a, b in zip(taken["path"], taken["raw"], strict=True)
    ]
    return {
        "requests": args.prompts * args.group_size,
        "max_tokens": args.max_tokens,
        "rounds": args.rounds,
        "path_tokens_per_s": rate["path"],
        "raw_tokens_per_s": rate["raw"],
        "raw_without_logprobs_and_seeds_tokens_per_s": rate["raw bare"],
        "ratio": median(ratios),
        "ratio_least": min(ratios),
        "cpu_seconds": {name: column(rows, "cpu") for name, rows in taken.items()},
        "same_completions": min(same),
    }


def alike(ours: Sequence[Trajectory], raw: RawBatch) -> float:
    """Return the share of completions that are the same token for token."""
    pairs = zip(ours, raw.sampled, strict=True)
    return sum(next(s.ids for s in t.segments if s.is_action) == ids for t, ids in pairs) / len(raw.sampled)


def stop_tokens(model: Path) -> tuple[int, ...]:
    """Return the tokens that end an assistant's turn, as the rollout worker reads them."""
    from transformers import AutoTokenizer

    from agentrl.rollout.renderer import load_renderer

    return load_renderer(AutoTokenizer.from_pretrained(model)).stop_token_ids


def main() -> None:
    args = flags(__doc__).parse_args()
    print(last_line("rollout", asyncio.run(measure(args))))


if __name__ == "__main__":
    main()

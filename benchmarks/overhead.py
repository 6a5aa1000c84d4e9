"""CPU milliseconds of all our processes per turn, and memory per episode, with an engine that costs nothing.

python -m benchmarks.overhead [--episodes 1000 10000]; the last line is the figures as JSON. The scripted engine has an
actor of its own; worker, renderer (the model's tokenizer), Ray, scheduler, ledger and trajectory store are a run's.
Every episode plays 4 turns of `guess`, and all start at once. Each scale runs in fresh processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.specs import worker_spec
from agentrl.cluster.workers import Workers
from agentrl.config.machine import detect
from agentrl.config.models import locate
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import POLICY, Config, EnvSection, ModelSection, RolloutSection
from agentrl.engine.remote import RemoteEngine
from agentrl.engine.scripted import ScriptedEngine
from agentrl.engine.server import EngineServer
from agentrl.errors import EngineDiedError
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.restarts import Restarts
from agentrl.roles.replies import ReplyFiles
from agentrl.rollout.scheduler import Scheduler
from agentrl.rollout.slots import Slots
from agentrl.training.inputs import algorithm_of
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.types import Version, WeightManifest
from benchmarks.timing import Peak, cpu_seconds, last_line, median, memory_bytes

GROUP, TURNS, DEADLINE_S = 8, 4, 1200.0
VERSION = Version(0, 0)
REPLY = "Let me think about this number. My next guess is 11."  # never right: every episode plays all its turns


def make_scripted(model: str, reply: str) -> EngineServer:
    """Make an engine that always replies `reply`, in the model's own tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = [*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id]
    return EngineServer(ScriptedEngine(lambda _prompt, _number: ids, vocab_size=len(tokenizer)))


async def publish_nothing(engine: RemoteEngine) -> None:
    """Publish the first version to an engine without weights."""
    await engine.start(DEADLINE_S)
    await engine.pause(DEADLINE_S)
    await engine.start_update(DEADLINE_S)
    await engine.finish_update(WeightManifest(VERSION, ()), DEADLINE_S)
    await engine.resume(DEADLINE_S)


@asynccontextmanager
async def scheduled(episodes: int, workers: int, out: Path) -> AsyncIterator[tuple[Scheduler, dict[int, str]]]:
    """Start a scheduler with batches of `episodes` episodes and a scripted engine; process ids come with names."""
    config = Config(
        steps=1 << 20,
        env=(EnvSection(name="guess"),),
        model=ModelSection(max_context=1024),
        rollout=RolloutSection(
            prompts=episodes // GROUP,
            group_size=GROUP,
            workers=workers,
            episode_timeout_s=DEADLINE_S,
            turn_timeout_s=DEADLINE_S,
        ),
    )
    config = resolve_run(config, detect())
    model = locate(config.model.name)
    folder = RunFolder(out)
    journal = RunJournal(folder)
    journal.ledger.begin_incarnation()
    registry = ProcessRegistry(out)
    cluster = Cluster("agentrl-overhead", registry)
    names = {os.getpid(): "driver"}
    try:
        spec = ActorSpec("engine", make_scripted, (str(model), REPLY), died=EngineDiedError)
        actor = cluster.spawn(spec)
        engine = RemoteEngine(actor)
        team = Workers(
            cluster,
            partial(worker_spec, config, model, ReplyFiles.begun(folder.replies, workers)),
            workers,
            Restarts(folder, 0, print),
            Slots({}),
        )
        process, _ = await asyncio.gather(actor.make(deadline_s=DEADLINE_S), team.start({POLICY: [engine]}))
        names |= {known.pid: "workers" for known in registry.registered()} | {process.pid: "engine"}
        await publish_nothing(engine)
        settings = rollout_settings(config, algorithm_of(config), env_plans(config, await team.task_count("train")))
        yield Scheduler(settings, team.dispatch, journal, VERSION), names
    finally:
        cluster.close()
        journal.close()


async def measure(episodes: int, workers: int, rounds: int) -> dict[str, Any]:
    """Measure memory in the first batch, which also warms up, and CPU time in the others."""
    with tempfile.TemporaryDirectory() as out:
        async with scheduled(episodes, workers, Path(out)) as (scheduler, names):
            with Peak() as peak:
                scheduler.start()
                batch = await scheduler.next_batch(DEADLINE_S)
                peak.most = max(peak.most, sum(memory_bytes().values()))
            turns = sum(t.turns for group in batch.groups for t in group.trajectories)
            tokens = sum(t.action_tokens for group in batch.groups for t in group.trajectories)
            assert turns == episodes * TURNS, f"{turns} turns in {episodes} episodes"
            del batch
            spent: list[dict[str, float]] = []
            for number in range(rounds):
                spent.append(await one_round(scheduler, names))
                print(f"{episodes} episodes, round {number + 1}: {spent[-1]}", file=sys.stderr, flush=True)
            await scheduler.stop()
    return {
        "episodes": episodes,
        "turns": turns,
        "tokens_per_turn": tokens / turns,
        "cpu_ms_per_turn": median([1e3 * sum(s.values()) / turns for s in spent]),
        "cpu_ms_per_turn_by_process": {
            role: median([1e3 * s.get(role, 0.0) / turns for s in spent])
            for role in sorted({k for s in spent for k in s})
        },
        "memory_kib_per_episode": (peak.most - peak.before) / episodes / 1024,
    }


async def one_round(scheduler: Scheduler, names: dict[int, str]) -> dict[str, float]:
    """Return the CPU seconds of one batch by kind of process."""
    before, began = cpu_seconds(), time.monotonic()
    scheduler.trained(VERSION)
    await scheduler.next_batch(DEADLINE_S)
    spent: dict[str, float] = {}
    for pid, seconds in cpu_seconds().items():
        name = names.get(pid, "ray")
        spent[name] = spent.get(name, 0.0) + seconds - before.get(pid, 0.0)
    print(f"{time.monotonic() - began:.2f} s", file=sys.stderr, flush=True)
    return spent


def in_fresh_processes(episodes: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one scale in a process of its own."""
    flags = ["--one", str(episodes), "--rounds", str(args.rounds), "--workers", str(args.workers)]
    done = subprocess.run([sys.executable, "-m", __spec__.name, *flags], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--one", type=int, default=0, help="measure one scale in this process and print it")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(asyncio.run(measure(args.one, args.workers, args.rounds))))
        return
    scales = [in_fresh_processes(episodes, args) for episodes in args.episodes]
    first, last = scales[0], scales[-1]
    figures = {
        "cpu_ms_per_turn": first["cpu_ms_per_turn"],
        "memory_kib_per_episode": first["memory_kib_per_episode"],
        "growth_of_cpu_per_turn": last["cpu_ms_per_turn"] / first["cpu_ms_per_turn"],
        "growth_of_memory_per_episode": last["memory_kib_per_episode"] / first["memory_kib_per_episode"],
        "workers": args.workers,
        "rounds": args.rounds,
        "scales": scales,
    }
    print(last_line("overhead", figures))


if __name__ == "__main__":
    main()

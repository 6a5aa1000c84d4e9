"""Seconds of a publication by part, the delay of requests in flight, and the share of a training step.

python -m benchmarks.sync [--model FOLDER] [--rounds 5]; the last line is the figures as JSON. `idle` publishes while
nothing is sampled, as a synchronous run does. `in flight` publishes in the middle of a batch: the delay is how much
later that batch ends than the same batch without a publication, including the second prefill of every request.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from transformers import AutoTokenizer

from agentrl.cluster.actors import Actors, actors
from agentrl.cluster.signals import Stop
from agentrl.config.models import locate
from agentrl.config.schema import Config
from agentrl.engine.client import EngineClient
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.training.setup import publisher_of
from agentrl.types import Prompt, Sampling, Version
from agentrl.weights.publisher import Publisher
from benchmarks.learner import samples
from benchmarks.rollout import config_of, flags
from benchmarks.timing import alternated, column, last_line, median

DEADLINE_S = 600.0
PROMPT, BEGUN = 35, 0.4  # tokens of a prompt; the share of a batch's time after which the publication begins


class Publications:
    """Publications of the learner's weights, one after another, under a version each."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher, self._count = publisher, 0

    async def publish(self) -> dict[str, float]:
        """Publish once; returns the seconds of the whole and of each part."""
        version = Version(0, self._count)
        self._count += 1
        started = time.perf_counter()
        async with self._publisher.lock:
            timings = await self._publisher.publish(version)
        return {"publish_s": time.perf_counter() - started, **asdict(timings)}


class Load:
    """A batch of requests, always the same, all at once."""

    def __init__(self, team: Actors, requests: int, max_tokens: int, vocabulary: int) -> None:
        self._client = EngineClient(team.engines.current, "sync")
        self._max_tokens, rng = max_tokens, random.Random(0)
        self._prompts = [Prompt(tuple(rng.randrange(10, vocabulary) for _ in range(PROMPT))) for _ in range(requests)]

    async def run(self) -> dict[str, float]:
        """Sample the batch."""
        started = time.perf_counter()
        calls = (
            self._client.generate(prompt, Sampling(self._max_tokens, 1.0, seed), DEADLINE_S)
            for seed, prompt in enumerate(self._prompts)
        )
        done = await asyncio.gather(*calls)
        return {"seconds": time.perf_counter() - started, "tokens": float(sum(len(c.ids) for c in done))}

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def at_work(
    config: Config, model: Path, shared: Path | None = None
) -> AsyncIterator[tuple[Actors, Publications]]:
    """Start a run's actors and publish once, which calibrates the canary. Run folders of several hosts are `shared`."""
    with tempfile.TemporaryDirectory(dir=shared) as out:
        async with actors(config, model, RunFolder(Path(out)), Stop(), PhaseTimer(), print) as team:
            publisher = publisher_of(config, model, team)
            team.engines.watch(publisher.refill)
            publications = Publications(publisher)
            print(f"first publication: {await publications.publish()}", flush=True)
            yield team, publications


async def measure(args: argparse.Namespace) -> dict[str, object]:
    """Measure all arms in turns."""
    config = config_of(args)
    model = locate(config.model.name)
    vocabulary = len(AutoTokenizer.from_pretrained(model))
    async with at_work(config, model) as (team, publications):
        load = Load(team, args.prompts * args.group_size, args.max_tokens, vocabulary)
        alone = await load.run()

        async def in_flight() -> dict[str, float]:
            running = asyncio.create_task(load.run())
            await asyncio.sleep(alone["seconds"] * BEGUN)
            parts = await publications.publish()
            return parts | await running

        async def learn() -> dict[str, float]:
            await team.learners.step(samples(vocabulary), {}, DEADLINE_S)
            return {}

        taken = await alternated(
            args.rounds, {"sample": load.run, "in flight": in_flight, "idle": publications.publish, "learn": learn}
        )
        await load.close()
    parts = {
        name: {key: column(taken[name], key) for key in taken[name][0] if key.endswith("_s")}
        for name in ("idle", "in flight")
    }
    sample_s, learn_s = column(taken["sample"], "seconds"), column(taken["learn"], "seconds")
    delays = [late["seconds"] - base["seconds"] for late, base in zip(taken["in flight"], taken["sample"], strict=True)]
    delay_s, idle_s = median(delays), parts["idle"]["publish_s"]
    return {
        "requests_in_flight": args.prompts * args.group_size,
        "max_tokens": args.max_tokens,
        "rounds": args.rounds,
        "idle": parts["idle"],
        "in_flight": parts["in flight"],
        "delay_of_requests_in_flight_s": delay_s,
        "sample_s": sample_s,
        "learn_s": learn_s,
        "share_of_step_idle": idle_s / (sample_s + learn_s + idle_s),
        "share_of_step_in_flight": delay_s / (sample_s + learn_s + delay_s),
    }


def main() -> None:
    args = flags(__doc__).parse_args()
    print(last_line("sync", asyncio.run(measure(args))))


if __name__ == "__main__":
    main()

"""The `agentrl` command with a scripted engine: `python -m tests.real.scripted_run MOMENT SIGNAL train ...`.

One process has the driver, the rollout worker, a learner rank and the engine, in place of Ray's actors. SIGNAL comes
at a MOMENT: `rollout:2` is when episode 2 (from 0) of this process begins, all before it being recorded, `learn:1` the
middle of batch 1. `never:0` sends none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.cli.main import main as agentrl
from agentrl.cluster.actors import Actors
from agentrl.cluster.ports import free_port
from agentrl.cluster.ray.actors import node_address
from agentrl.cluster.relay import HostAgents
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import make_learner
from agentrl.config.models import Models
from agentrl.config.schema import Config
from agentrl.engine.scripted import ScriptedEngine
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder, marked
from agentrl.rollout.worker import RolloutWorker
from agentrl.training import setup
from agentrl.types import Completion, EpisodeRequest, Prompt, Sampling, StepReport, Trajectory, Version
from agentrl.weights.staging import StagedBucket

LOOPBACK = "127.0.0.1"


class Moments:
    """Counts the moments of this process, and sends it a signal at one of them."""

    def __init__(self, moment: str, name: str) -> None:
        self._kind, _, self._at = moment.partition(":")
        self._signal = signal.Signals[name]
        self._seen: dict[str, int] = {}

    def reach(self, kind: str) -> None:
        number = self._seen[kind] = self._seen.get(kind, -1) + 1
        if (kind, str(number)) == (self._kind, self._at):
            os.kill(os.getpid(), self._signal)


class Engine(ScriptedEngine):
    """A scripted engine on the host of its learner."""

    host = node_address()


class Engines:
    """A fleet of one engine that never dies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def watch(self, refill: Callable[..., Any]) -> None:
        pass

    def serving(self) -> dict[int, Engine]:
        return {0: self._engine}


class Sampler:
    """A worker's line to the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float, key: object = None) -> Completion:
        return await self._engine.generate(prompt, sampling, deadline_s)


class Workers:
    """One rollout worker, whose episodes run one after the other."""

    def __init__(self, config: Config, worker: RolloutWorker, moments: Moments) -> None:
        self._label, self._worker, self._moments = config.env[0].label, worker, moments
        self._turn = asyncio.Lock()

    async def task_count(self, split: str) -> dict[str, int | None]:
        return {self._label: await self._worker.task_count(split)}

    async def with_group_rewards(self) -> set[str]:
        return set()

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        return trajectories

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        async with self._turn:
            self._moments.reach("rollout")
            await asyncio.sleep(0)  # a signal that stops the run is answered now
            return await self._worker.run(request)


class Learners:
    """One learner rank."""

    host = node_address()

    def __init__(self, config: Config, model: Path, folder: Path, moments: Moments) -> None:
        mark = marked(RunFolder(folder))
        self._rank = make_learner(config, Models(model), folder, mark, 0, LOOPBACK, free_port())
        self._moments = moments

    async def score(self, batch: list[TrainSequence], columns: Sequence[Column], _: float) -> dict[Column, list[Array]]:
        scores = self._rank.score(batch, columns)
        return {column: [rows[index] for index in range(len(batch))] for column, rows in scores.items()}

    async def step(self, batch: list[TrainSequence], state: Mapping[str, float], _: float) -> list[StepReport]:
        report = self._rank.step(batch, state)
        self._moments.reach("learn")
        return [report]

    async def buckets(self, _version: Version, _deadline_s: float) -> AsyncGenerator[StagedBucket]:
        self._rank.begin_staging()
        while bucket := self._rank.stage_next():
            yield bucket

    async def logprobs(self, ids: tuple[int, ...], _: float) -> tuple[float, ...]:
        return tuple(self._rank.logprobs([list(ids)])[0])

    async def save(self, folder: Path, state: Mapping[str, float], _: float) -> None:
        self._rank.save(folder, state)

    async def load(self, folder: Path, _: float) -> dict[str, float]:
        return self._rank.load(folder)

    def close(self) -> None:
        self._rank.close()


def in_this_process(moments: Moments) -> Any:
    """What opens the actors of a run, as `agentrl.cluster.actors.actors` does."""

    @asynccontextmanager
    async def actors(
        config: Config, model: Path, folder: RunFolder, stop: Stop, timer: PhaseTimer, note: object
    ) -> AsyncIterator[Actors]:
        engine = Engine(vocab_size=320, max_model_len=config.model.max_context)
        await engine.start(1.0)
        env, context = config.env[0], config.model.max_context
        worker = RolloutWorker(env.name, env.options, str(model), Sampler(engine), context, config.seed)
        learners = Learners(config, model, folder.path, moments)
        agents = HostAgents(cast(Any, None), folder.path)  # on one host it starts no process
        parts = (Engines(engine), Workers(config, worker, moments), learners, None, agents)
        try:
            yield Actors(*cast(Any, parts))
        finally:
            timer.enter("close")
            await worker.close()
            learners.close()

    return actors


def main(moment: str, name: str, *words: str) -> int:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    setup.actors = in_this_process(Moments(moment, name))
    return agentrl([*words])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Reference and teacher in a process of their own change no bit of a run, even where it is killed in the middle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.algorithms.sample import samples_of, train_sequences
from agentrl.cluster.learners import Learners
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.scorer_process import ScorerProcess, separate_columns
from agentrl.cluster.specs import learner_spec, scorers_spec
from agentrl.config.schema import Config
from agentrl.records.folder import RunFolder, marked
from agentrl.records.restarts import Restarts, read_restarts
from agentrl.training.credit import credited
from agentrl.training.inputs import algorithm_of
from agentrl.types import Group, SampleId, Segment, Signal, StopReason, TokenSequence, Trajectory
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DEADLINE_S = 120.0
RANKS = 2


def config(model: Path, teacher: Path, placement: str) -> Config:
    return Config.model_validate(
        {
            "device": "cpu",
            "model": {"name": str(model), "dtype": "float32"},
            "rollout": {"prompts": 3, "group_size": 4, "max_tokens": 12},
            "algorithm": {"name": "distillation", "teacher": str(teacher), "kl_coef": 0.1},
            "learner": {"ranks": RANKS, "threads": 1, "lr": 1e-3, "micro_batch_tokens": 64},
            "scorers": {"placement": placement},
        }
    )


def groups(seed: int) -> list[Group]:
    """A batch of three groups of four episodes, which share a prompt and have answers of different lengths."""
    rng = random.Random(seed)
    prompts = [_tokens(rng, 2, 9) for _ in range(3)]
    return [
        Group(n, tuple(_episode(rng, n, member, prompt) for member in range(4))) for n, prompt in enumerate(prompts)
    ]


def _episode(rng: random.Random, group: int, member: int, prompt: tuple[int, ...]) -> Trajectory:
    answer = _tokens(rng, 1, 12)
    logprobs = tuple(rng.uniform(-6.5, -5.0) for _ in answer)
    segments = (Segment(prompt, is_action=False), Segment(answer, is_action=True, logprobs=logprobs))
    signals = (Signal("luck", rng.random()),)
    return Trajectory(
        SampleId(group, member), 0, "train", 0, "0", (TokenSequence(segments),), (), signals, StopReason.ENV_DONE
    )


def _tokens(rng: random.Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(rng.randrange(3, 320) for _ in range(rng.randint(least, most)))


@asynccontextmanager
async def learners(config: Config, model: Path, folder: Path) -> AsyncIterator[Learners]:
    """The ranks of a run, and its scorers."""
    cluster, restarts = Cluster("agentrl-test", ProcessRegistry(folder)), Restarts(RunFolder(folder), 1, lambda _: None)
    try:
        await cluster.ready(DEADLINE_S)
        mark = marked(RunFolder(folder))
        ranks = [learner_spec(config, model, folder, mark, rank) for rank in range(RANKS)]
        columns = separate_columns(config)
        scorers = (
            ScorerProcess(cluster, scorers_spec(config, model), columns, restarts, DEADLINE_S) if columns else None
        )
        made = Learners(cluster, ranks, DEADLINE_S, scorers)
        await made.start()
        yield made
    finally:
        cluster.close()
        restarts.close()


async def scores(learners: Learners) -> list[list[float]]:
    sequences = train_sequences(samples_of(groups(0)))
    columns = await learners.score(sequences, ["reference", "teacher"], DEADLINE_S)
    return [row.tolist() for rows in columns.values() for row in rows]


async def steps(config: Config, learners: Learners) -> list[str]:
    """The digest of the weights after each of two steps."""
    algorithm, digests = algorithm_of(config), []
    for seed in range(2):
        sequences = await credited(algorithm, learners, groups(seed), DEADLINE_S)
        reports = await learners.step(sequences, algorithm.state, DEADLINE_S)
        digests.append(reports[0].digest)
    return digests


def scorers_pid(folder: Path) -> int:
    return [process.pid for process in ProcessRegistry(folder).registered() if process.role == "scorers"][-1]


async def test_separate_scorers_compute_the_same_bits_and_one_that_is_killed_changes_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model, teacher = (
        tiny_model(tmp_path_factory.mktemp(name), seed=seed) for seed, name in enumerate(("model", "teacher"))
    )
    colocated, separate = (config(model, teacher, placement) for placement in ("colocate", "separate"))
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    async with learners(colocated, model, tmp_path_factory.mktemp("colocated")) as team:
        expected = await scores(team), await steps(colocated, team)
        await team.save(checkpoint, {}, DEADLINE_S)
        after = await scores(team), await steps(colocated, team)
    folder = tmp_path_factory.mktemp("separate")
    async with learners(separate, model, folder) as team:
        first = await scores(team)
        os.kill(scorers_pid(folder), signal.SIGSTOP)
        asked = asyncio.create_task(steps(separate, team))
        for _ in range(100):  # until the call has been sent to the stopped process
            await asyncio.sleep(0)
        os.kill(scorers_pid(folder), signal.SIGKILL)
        assert (first, await asked) == expected
        assert await steps(separate, team) == after[1]
        await team.load(checkpoint, DEADLINE_S)
        assert (await scores(team), await steps(separate, team)) == after, "resumed with another placement"
    assert [restart.process for restart in read_restarts(RunFolder(folder))] == ["scorers"]

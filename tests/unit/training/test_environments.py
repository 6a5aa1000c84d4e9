"""Several environments in one run: each has its own limits, scores and records, and one is the list of length one."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentrl.config.loading import load, of_flags
from agentrl.errors import ConfigError, RunError
from agentrl.metrics.step import EvaluationRecord, Learned, PhaseSeconds, step_record
from agentrl.metrics.trackers import evaluation_scalars, step_scalars
from agentrl.report.curves import learning
from agentrl.report.words import env_progress, evaluation_words, step_words
from agentrl.training.inputs import algorithm_of
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.training.setup import evaluation_of
from agentrl.types import Batch, DroppedSample, EpisodeRequest, Group, Signal, StopReason, Trajectory, Version
from tests.unit.records.synthetic import learner_report, trajectory

V0 = Version(0, 0)
FLAGS = [("env", "math:3,guess:1"), ("env.guess.rollout.max_turns", "5"), ("env.guess.rollout.max_tokens", "9")]
CONFIG = load(None, of_flags([*FLAGS, ("rollout.max_tokens", "20"), ("eval.tasks", "3"), ("eval.samples", "2")]))
ENDLESS = {"math": None, "guess": None}


class Workers:
    """Workers that solve every task of math and no other."""

    def __init__(self) -> None:
        self.requests, self.scored = list[EpisodeRequest](), list[str]()

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        self.requests.append(request)
        signals = (Signal("right", float(request.env == "math")),)
        done = trajectory(*request.sample, request.attempt)
        return dataclasses.replace(done, signals=signals, env=request.env)

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        self.scored.append(trajectories[0].env)
        return trajectories


async def evaluated(folder: Path, workers: Workers, held_out: dict[str, int | None]) -> EvaluationRecord:
    return await evaluation_of(CONFIG, held_out, {"guess"}).run(workers, 3, V0, folder)


def test_each_environment_has_the_limits_of_the_run_but_for_its_own() -> None:
    math, guess = env_plans(CONFIG, ENDLESS)
    assert (math.episode.max_tokens, math.episode.max_turns) == (20, 0)
    assert (guess.episode.max_tokens, guess.episode.max_turns) == (9, 5)
    assert math.episode.episode_timeout_s == guess.episode.episode_timeout_s == CONFIG.rollout.episode_timeout_s
    assert rollout_settings(CONFIG, algorithm_of(CONFIG), (math, guess)).shares == {"math": 0.75, "guess": 0.25}


def test_the_episodes_of_two_environments_never_sample_with_the_same_seed() -> None:
    alone = load(None, of_flags([("env", "math")]))
    math, guess = env_plans(CONFIG, ENDLESS)
    assert env_plans(alone, {"math": None})[0].seed == math.seed != guess.seed


def test_a_penalty_for_long_turns_and_an_own_limit_are_refused_together() -> None:
    config = load(CONFIG, of_flags([("algorithm.overlong_penalty", "1.0")]))
    with pytest.raises(ConfigError, match="guess has a max_tokens of its own"):
        algorithm_of(config)


async def test_an_evaluation_plays_and_scores_each_environment(tmp_path: Path) -> None:
    workers = Workers()
    record = await evaluated(tmp_path, workers, {"math": None, "guess": 1})
    played = Counter((request.env, request.task_index) for request in workers.requests)
    assert played == {("math", 0): 2, ("math", 1): 2, ("math", 2): 2, ("guess", 0): 2}
    assert {request.sample.group for request in workers.requests if request.env == "guess"} == {3}
    assert (record.tasks, record.pass_at_1.mean) == (4, 0.75)
    assert {env: (score.tasks, score.pass_at_1.mean) for env, score in record.envs.items()} == {
        "math": (3, 1.0),
        "guess": (1, 0.0),
    }
    assert workers.scored == ["guess"]
    assert evaluation_scalars(record)["eval/guess/pass_at_1"] == 0.0
    assert "math 1.000" in evaluation_words(record)
    assert env_progress(record, record)["guess"].startswith("pass@1 0.000 [")


async def test_an_environment_without_a_valid_episode_stops_the_evaluation_and_is_named(tmp_path: Path) -> None:
    broken = {"signals": (), "stop_reason": StopReason.ENV_ERROR, "error": "the service is down"}

    class Broken(Workers):
        async def dispatch(self, request: EpisodeRequest) -> Trajectory:
            done = await super().dispatch(request)
            return dataclasses.replace(done, **broken) if request.env == "guess" else done

    with pytest.raises(RunError, match=r"no valid episode among 2 in the evaluation of guess\. .*the service is down"):
        await evaluated(tmp_path, Broken(), {"math": None, "guess": 1})


def batch(*envs: str) -> Batch:
    """One group of two samples of each environment, and an invalid one of guess."""
    groups = [
        Group(n, tuple(dataclasses.replace(trajectory(n, m, reward=float(env == "math")), env=env) for m in (0, 1)))
        for n, env in enumerate(envs)
    ]
    return Batch(tuple(groups), (DroppedSample("invalid", "why", 7, "guess"),), (0,) * 2 * len(envs))


def test_a_step_records_the_part_of_each_environment() -> None:
    learned, seconds = Learned((learner_report(1, random.Random(0)),), 1), PhaseSeconds(1.0)
    record = step_record(1, V0, batch("math", "math", "guess"), learned, seconds, {"math": 0.75, "guess": 0.25})
    assert (record.envs["math"].groups, record.envs["math"].trained, record.envs["math"].reward_mean) == (2, 4, 1.0)
    assert (record.envs["guess"].weight, record.envs["guess"].invalid, record.envs["guess"].reward_mean) == (0.25, 1, 0)
    assert step_scalars(record)["env/math/groups"] == 2
    assert "math 1.000 (2 groups), guess 0.000 (1 group)" in step_words(record, 1)
    titles = [card.title for card in learning([record], []).large]
    assert "Reward by environment" in titles
    silent = step_record(2, V0, batch("math"), learned, seconds, {"math": 0.75, "guess": 0.25})
    assert "env/guess/reward_mean" not in step_scalars(silent)


def test_a_run_with_one_environment_records_no_parts() -> None:
    learned = Learned((learner_report(1, random.Random(0)),), 1)
    record = step_record(1, V0, batch("math"), learned, PhaseSeconds(1.0), {"math": 1.0})
    assert record.envs == {}
    assert not any(name.startswith("env/") for name in step_scalars(record))

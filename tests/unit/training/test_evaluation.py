"""An evaluation counts group and turn rewards, and reports episodes that do not count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrl.errors import RunError, WorkerLostError
from agentrl.metrics.step import EvaluationRecord
from agentrl.records.store import TrajectoryStore
from agentrl.report.curves import learning
from agentrl.report.words import evaluation_words
from agentrl.training.evaluation import Evaluation, HeldOut
from agentrl.types import EpisodeRequest, EpisodeSettings, SampleId, Signal, StopReason, Trajectory, Version
from tests.unit.records.synthetic import trajectory

V0 = Version(0, 0)
TOO_LONG = "the prompt has 2,000 tokens and model.max_context is 1,024: no room is left for an answer"
MUTE: dict[str, Any] = {
    "sequences": (), "signals": (), "stop_reason": StopReason.CONTEXT_OVERFLOW, "error": TOO_LONG,
}  # fmt: skip
Change = Callable[[EpisodeRequest], dict[str, Any]]


class Workers:
    """Workers whose episodes end as `change` says. `score` adds group rewards, the first `losses` attempts die."""

    def __init__(self, change: Change = lambda _: {}, score: Any = None, losses: int = 0) -> None:
        self.change, self.score, self.losses = change, score, losses
        self.requests: list[EpisodeRequest] = []
        self.groups: list[list[SampleId]] = []

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        self.requests.append(request)
        if request.attempt < self.losses:
            raise WorkerLostError("the worker died")
        return dataclasses.replace(trajectory(*request.sample, request.attempt), **self.change(request))

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        self.groups.append([t.sample for t in trajectories])
        if len(self.groups) <= self.losses:
            raise WorkerLostError("the worker died")
        return [dataclasses.replace(t, signals=(*t.signals, self.score(t))) for t in trajectories]


async def evaluated(folder: Path, workers: Workers, tasks: int = 2, samples: int = 2, k: int = 0) -> EvaluationRecord:
    episode = EpisodeSettings(1.0, 8, 0, 10.0, 10.0, asks_success=True)
    env = HeldOut("sums", tasks, episode, has_group_rewards=workers.score is not None)
    evaluation = Evaluation("test", (env,), samples, k, 0)
    return await evaluation.run(workers, 3, V0, folder)


async def test_the_samples_of_each_task_get_group_rewards(tmp_path: Path) -> None:
    def best(t: Trajectory) -> Signal:
        return Signal("best", float(t.sample.member == 0), weight=3.0, scope="group")

    workers = Workers(lambda _: {"signals": (Signal("right", 1.0),)}, best)
    record = await evaluated(tmp_path, workers)
    assert sorted(workers.groups) == [[SampleId(task, member) for member in range(2)] for task in range(2)]
    assert (record.reward_mean, record.signals) == (1.0 + 1.5, {"right": 1.0, "best": 0.5})
    assert record.pass_at_1.mean == 0.5
    assert TrajectoryStore(tmp_path).read(SampleId(0, 0)).signals[-1].scope == "group"


async def test_turn_rewards_alone_can_pass(tmp_path: Path) -> None:
    def found(request: EpisodeRequest) -> dict[str, Any]:
        values = (0.0, 0.0, float(request.sample.member == 1))
        return {"signals": tuple(Signal("found", v, scope="turn", turn=n) for n, v in enumerate(values))}

    assert (await evaluated(tmp_path, Workers(found))).pass_at_1.mean == 0.5


async def test_the_verdict_of_the_environment_decides(tmp_path: Path) -> None:
    def says(request: EpisodeRequest) -> dict[str, Any]:
        return {"success": Signal("success", float(request.sample.group == 0), weight=0.0)}

    workers = Workers(says)
    record = await evaluated(tmp_path, workers)
    assert record.pass_at_1.mean == 0.5
    assert record.reward_mean == 1.0
    assert all(request.settings.asks_success for request in workers.requests)
    verdict = TrajectoryStore(tmp_path).read(SampleId(1, 0)).success
    assert verdict is not None
    assert verdict.value == 0.0


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "a reward": ({"signals": (Signal.invalid("right", "IndexError: sums.py:31"),)}, "right: IndexError: sums.py:31"),
    "its success": (
        {"success": Signal.invalid("success", "KeyError: 'gold'", weight=0.0)},
        "success: KeyError: 'gold'",
    ),
    "the environment": (
        {"signals": (), "stop_reason": StopReason.ENV_ERROR, "error": "step: x\ny"},
        "env_error: step: x y",
    ),
}


@pytest.mark.parametrize(("failure", "cause"), FAILURES.values(), ids=FAILURES)
async def test_an_invalid_episode_is_reported_with_its_cause_and_does_not_count(
    tmp_path: Path, failure: dict[str, Any], cause: str
) -> None:
    record = await evaluated(tmp_path, Workers(lambda request: failure if request.sample == (1, 1) else {}))
    assert (record.invalid, record.pass_at_1.mean, record.tasks_at_1, record.tasks_at_k) == (1, 1.0, 2, 1)
    for words in (evaluation_words(record), learning([], [record]).large[0].note):
        assert f"3 of 4 episodes valid; pass@2 over 1 of 2 tasks; The most common cause, 1 of 1: {cause}" in words


async def test_a_score_that_no_task_has_is_left_out_and_says_why(tmp_path: Path) -> None:
    late = {"signals": (), "stop_reason": StopReason.DEADLINE, "error": "step: the episode ran longer than 120 s"}
    record = await evaluated(tmp_path, Workers(lambda request: late if request.sample.member else {}))
    words = evaluation_words(record)
    assert "nan" not in words
    assert words.endswith(
        "2 of 4 episodes valid; no task has 2 for pass@2; The most common cause, 2 of 2: deadline: step: the episode "
        "ran longer than 120 s. Raise --rollout.episode_timeout_s"
    )


async def test_an_episode_without_an_answer_is_reported_and_counts_as_failed(tmp_path: Path) -> None:
    record = await evaluated(tmp_path, Workers(lambda request: MUTE if request.sample.group else {}), tasks=4)
    assert (record.invalid, record.unanswered, record.pass_at_1.mean, record.tasks_at_k) == (0, 6, 0.25, 4)
    assert record.reward_mean == 1.0
    assert (
        "8 of 8 episodes valid, 6 of them unanswered; The most common cause, 6 of 6: the prompt has 2,000 tokens"
        in (evaluation_words(record))
    )


async def test_the_report_does_not_mention_validity_if_all_are_valid(tmp_path: Path) -> None:
    record = await evaluated(tmp_path, Workers())
    assert "valid" not in evaluation_words(record)
    assert not math.isnan(record.pass_at_k.mean)


async def test_an_evaluation_without_a_valid_episode_stops_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no valid episode among 4 .* 4 of 4: the prompt has 2,000 .*raise --model.max"):
        await evaluated(tmp_path, Workers(lambda _: MUTE))


async def test_an_episode_that_the_infrastructure_ended_runs_again(tmp_path: Path) -> None:
    down = {"signals": (), "stop_reason": StopReason.INFRA_ERROR, "error": "step: the service is down"}
    workers = Workers(lambda request: down if request.attempt == 0 and request.sample.member == 1 else {})
    record = await evaluated(tmp_path, workers)
    assert (record.invalid, record.tasks_at_k) == (0, 2)
    assert {request.sample.member: request.attempt for request in workers.requests} == {0: 0, 1: 1}


async def test_a_call_to_a_lost_worker_is_repeated_three_times(tmp_path: Path) -> None:
    workers = Workers(score=lambda t: Signal("rank", 1.0, scope="group"), losses=2)
    record = await evaluated(tmp_path, workers, tasks=1)
    assert record.pass_at_1.mean == 1.0
    assert [request.attempt for request in workers.requests if request.sample.member == 0] == [0, 1, 2]
    assert len(workers.groups) == 3
    with pytest.raises(RunError, match="evaluation of sample 0-0 was lost 3 times: the worker died"):
        await evaluated(tmp_path / "again", Workers(losses=3), tasks=1, samples=1)

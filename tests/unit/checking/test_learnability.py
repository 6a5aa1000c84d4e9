"""The level learnability: each of its checks judges a model's episodes by a threshold that it states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.checking.catalogue import checks_of
from agentrl.checking.check import Level, Result, Status, Subject
from agentrl.checking.running import run_checks
from agentrl.cli import env_check
from agentrl.cli.main import main
from agentrl.records.store import TrajectoryStore
from agentrl.types import StopReason, Trajectory
from tests.unit.records.synthetic import trajectory

SUBJECT = Subject.named("guess", {})
Reward = float | None


def groups(*rewards: Sequence[Reward]) -> list[Trajectory]:
    """A group for each sequence of rewards; None is an invalid one."""
    return [
        trajectory(group, member, reward=reward, text="word " * (1 + (7 * member + group) % 5))
        for group, of_group in enumerate(rewards)
        for member, reward in enumerate(of_group)
    ]


def judged(episodes: Sequence[Trajectory]) -> dict[str, Result]:
    subject = replace(SUBJECT, episodes=episodes)
    return {result.check.name: result for result in run_checks(subject, checks_of(frozenset({Level.LEARNABILITY})))}


def test_a_model_that_sometimes_solves_has_something_to_learn() -> None:
    found = judged(groups([1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]))
    assert [result.text for result in found.values() if result.status is Status.FAILED] == []
    assert found["solved"].text.startswith("pass@1 0.400 [")
    assert "pass@4 0.800" in found["solved"].text
    assert found["signal"].text == (
        "3 of 5 groups have different rewards (60%); in 1 every reward is 0; in 1 every reward is 1"
    )
    assert found["episodes"].text == "20 episodes of 5 tasks, 0 without a reward (0%)"


def failed(episodes: Sequence[Trajectory]) -> dict[str, str]:
    return {name: result.text for name, result in judged(episodes).items() if result.status is Status.FAILED}


def test_an_environment_that_fails_is_told_with_its_most_common_cause() -> None:
    found = failed(groups([1, 0, None, 1], [0, 0, 1, 0]))
    assert list(found) == ["episodes"]
    assert "1 without a reward (12%); at most 5% may be. The most common cause" in found["episodes"]


def test_episodes_that_time_out_name_the_deadline_to_raise() -> None:
    late = [replace(t, signals=(), stop_reason=StopReason.DEADLINE, error="step: late") for t in groups([1, 1], [1, 1])]
    assert judged(late)["episodes"].text == (
        "4 episodes of 2 tasks, 4 without a reward (100%); at most 5% may be. The most common cause, 4 of 4: deadline: "
        "step: late. Raise --rollout.episode_timeout_s"
    )


def test_without_any_reward_one_check_fails_and_the_others_have_nothing_to_judge() -> None:
    found = judged(groups([None, None]))
    assert [result.status for result in found.values()] == [Status.FAILED, *[Status.SKIPPED] * 4]


def test_tasks_that_are_always_solved_teach_nothing() -> None:
    assert set(failed(groups(*[[1, 1, 1, 1]] * 8))) == {"solved", "signal"}


def test_tasks_that_are_never_solved_have_no_signal() -> None:
    found = failed(groups(*[[0, 0, 0, 0]] * 8))
    assert found == {"signal": "0 of 8 groups have different rewards (0%), fewer than 10%; in 8 every reward is 0"}


def test_rewards_for_length_are_found() -> None:
    played = [
        trajectory(group, member, reward=float(member), text="word " * (2 * member + 1))
        for group in range(4)
        for member in range(4)
    ]
    assert "correlation +1.00 within groups of 16 episodes, above +0.70" in failed(played)["length"]


def test_few_episodes_say_nothing_about_length() -> None:
    assert judged(groups([1, 0]))["length"].status is Status.SKIPPED


def test_answers_that_are_cut_are_counted_by_their_limit() -> None:
    played = [
        replace(each, stop_reason=StopReason.MAX_TOKENS if each.sample.member else each.stop_reason)
        for each in groups([1, 0, 0], [0, 1, 0])
    ]
    assert failed(played)["tokens"].endswith("67% are cut, more than 50% (4 max_tokens)")


def test_flags_of_the_model_need_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "guess", "--level", "contract", "--rollout.max_tokens", "9"]) == 2
    assert "--rollout.max_tokens has no effect without --level learnability" in capsys.readouterr().err


def test_the_command_judges_the_stored_episodes_of_the_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = TrajectoryStore(tmp_path)
    store.append(groups([1, 0, 0, 1], [0, 0, 0, 0]))
    store.close()
    monkeypatch.setattr(env_check, "_sample", lambda flags, out: tmp_path)
    assert main(["env", "check", "guess", "--level", "learnability"]) == 0
    assert "1 of 2 groups have different rewards (50%)" in capsys.readouterr().out

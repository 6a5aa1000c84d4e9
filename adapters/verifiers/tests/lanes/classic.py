"""Environments of verifiers 0.3. `tests/test_verifiers.py` runs this in an interpreter that has it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.env import Env, EnvDriver, StopReason, make_env, play, resolve, testing, text_of
from agentrl.env.testing import rehearse, tool_call
from agentrl.errors import ConfigError, EnvError, UnknownNameError
from agentrl.types import Trajectory

SLOW_S = 120.0


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


def sums(kind: str = "single", **options: Any) -> Env:
    return make_env("verifiers:sums-classic", kind=kind, **options)


def sampled(trajectory: Trajectory) -> list[bytes]:
    return [bytes(segment.ids[:-1]) for segment in trajectory.segments if segment.is_action]


def questions(env: Env, split: str) -> list[str]:
    async def read() -> list[str]:
        driver = EnvDriver(env)
        size = await driver.size(split)
        assert size is not None
        return [(await driver.task(split, index)).data["question"] for index in range(size)]

    return asyncio.run(read())


def values(trajectory: Any) -> dict[str, float | None]:
    return {signal.name: signal.value for signal in trajectory.signals}


@pytest.mark.parametrize(
    ("kind", "turns", "reward"),
    [
        ("single", ["0"], 1.0),
        ("single", ["7"], 0.0),
        ("multi", ["7", "0"], 1.0),
        ("tool", [tool_call("add", a=0, b=0), "0"], 1.0),
    ],
)
def test_an_unmodified_environment_plays_on_the_endpoint(kind: str, turns: list[str], reward: float) -> None:
    trajectory = rehearse(sums(kind), turns, timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.stop_reason) == (reward, StopReason.AGENT_DONE)
    assert len(trajectory.sequences) == 1
    assert sampled(trajectory) == [turn.encode() for turn in turns]
    assert values(trajectory)["length"] == 1.0
    assert {signal.weight for signal in trajectory.signals if signal.name != "reward"} == {0.0}
    assert text_of(trajectory.messages[0]) == "Add."


def test_an_empty_answer_is_scored_and_not_a_failure() -> None:
    trajectory = rehearse(sums(), [""], timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.stop_reason, trajectory.is_valid) == (0.0, StopReason.AGENT_DONE, True)


def test_a_conversation_that_outgrows_the_context_is_truncated_and_scored() -> None:
    [whole] = rehearse(sums("multi"), ["7", "0"], timeout_s=SLOW_S).sequences
    trajectory = rehearse(sums("multi"), ["7", "0"], max_context=len(whole.ids) - len("0") - 2, timeout_s=SLOW_S)
    assert trajectory.stop_reason is StopReason.CONTEXT_OVERFLOW, trajectory.error
    assert (trajectory.reward, trajectory.is_valid, trajectory.turns) == (0.0, True, 1)


def test_the_limit_of_calls_truncates() -> None:
    trajectory = rehearse(sums("multi"), ["0"], max_turns=1, timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.MAX_TURNS, True)


def test_a_reward_function_that_fails_is_invalid_and_never_0() -> None:
    trajectory = rehearse(sums("strict"), ["seven"], timeout_s=SLOW_S)
    assert trajectory.stop_reason is StopReason.VERIFIER_ERROR
    assert not trajectory.is_valid
    assert "strict raised ValueError" in trajectory.error
    assert "failed_reward" in trajectory.error
    assert rehearse(sums("strict"), ["0"], timeout_s=SLOW_S).reward == 1.0


def test_a_reward_function_that_fails_is_0_where_that_is_asked_for() -> None:
    trajectory = rehearse(sums("strict", failed_reward="zero"), ["seven"], timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.is_valid) == (0.0, True)


def test_a_metric_that_fails_is_invalid_and_leaves_the_reward_valid() -> None:
    trajectory = rehearse(sums("metrics"), ["0"], timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.is_valid) == (1.0, True), trajectory.error
    failed = {signal.name: signal.weight for signal in trajectory.signals if not signal.valid}
    assert failed == {"inverse": 0.0, "undefined": 0.0, "judged": 0.0}


def test_a_function_without_weight_whose_verdict_is_the_reward_makes_it_invalid() -> None:
    trajectory = rehearse(sums("verdict"), ["0"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False)
    assert "judged raised ZeroDivisionError" in trajectory.error
    assert rehearse(sums("verdict"), ["1"], timeout_s=SLOW_S).reward == 1.0


@pytest.mark.parametrize(("kind", "reason"), [("infra", StopReason.INFRA_ERROR), ("broken", StopReason.ENV_ERROR)])
def test_an_error_of_the_environment_is_known_by_its_kind(kind: str, reason: StopReason) -> None:
    trajectory = rehearse(sums(kind), ["0"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (reason, False)
    assert "no machine" in trajectory.error


def test_a_hanging_engine_ends_the_rollout() -> None:
    trajectory = rehearse(sums(), [testing.Hang()], timeout_s=2.0)
    assert not trajectory.is_valid
    assert trajectory.stop_reason in (StopReason.INFRA_ERROR, StopReason.DEADLINE)


def test_a_rubric_that_compares_rewards_the_members_of_a_group() -> None:
    near, right, far = play(sums("group"), ["1"], ["0"], ["9"])
    assert [episode.reward for episode in (near, right, far)] == [0.0, 1.5, 0.0]
    evidence = [signal.evidence for signal in right.signals if signal.name == "group_reward"]
    assert evidence == [{"metrics": {"right": 1.0, "best": 1.0, "num_turns": 1.0}}]


def test_a_rubric_that_cannot_compare_leaves_the_whole_group_invalid() -> None:
    episodes = play(sums("group"), ["1"], ["seven"])
    rewards = [signal for episode in episodes for signal in episode.signals if signal.name == "group_reward"]
    assert [signal.valid for signal in rewards] == [False, False]


def test_an_environment_that_does_not_compare_has_no_group_reward() -> None:
    [episode] = play(sums(), ["0"])
    assert "group_reward" not in values(episode)


def test_a_group_survives_its_way_through_records() -> None:
    [episode] = play(sums("group"), ["0"])
    [calls] = [signal for signal in episode.signals if signal.name == "calls"]
    assert json.loads(json.dumps(calls.evidence)) == calls.evidence


def test_the_arguments_of_the_environment_are_keys() -> None:
    env = sums(n=7)
    assert len(questions(env, "train")) == 7
    with pytest.raises(UnknownNameError, match=r"env\.kind"):
        sums(kinds="x")
    with pytest.raises(UnknownNameError, match=r"env\.args"):
        sums(scale=2)
    assert make_env("verifiers:sums-classic", args='{"n": 3}').config.args == {"n": 3}


def test_a_single_dataset_is_split_by_content() -> None:
    train, test = (questions(sums(has_test=False, n=60), split) for split in ("train", "test"))
    assert train
    assert test
    assert not set(train) & set(test)
    assert len(train) + len(test) == 60
    assert len(questions(sums(), "test")) == 5


def test_the_process_keeps_its_signal_handlers() -> None:
    before = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]
    rehearse(sums(), ["0"], timeout_s=SLOW_S)
    assert [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_version_of_the_environment_is_checked_and_recorded(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "dated_sums.py").write_text("from sums_classic import load_environment\n")
    (tmp_path / "dated_sums-1.4.0.dist-info").mkdir()
    (tmp_path / "dated_sums-1.4.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: dated-sums\nVersion: 1.4.0\n"
    )
    (tmp_path / "dated_sums-1.4.0.dist-info/RECORD").write_text(
        "dated_sums.py,,\ndated_sums-1.4.0.dist-info/RECORD,,\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env_class = resolve("verifiers:ada/dated-sums@1.4")
    assert env_class.wraps == ("dated-sums", "verifiers")
    assert resolve("verifiers:sums-classic").wraps == (
        "sums-classic",
        sys.modules["sums_classic"].__file__,
        "verifiers",
    )
    with pytest.raises(ConfigError, match=r"dated-sums 1\.4\.0 is installed"):
        resolve("verifiers:ada/dated-sums@1.3")
    with pytest.raises(ConfigError, match="sums-classic is not installed"):
        resolve("verifiers:sums-classic@1")


def test_what_is_no_environment_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no_such_env is not installed"):
        make_env("verifiers:no-such-env")
    with pytest.raises(ConfigError, match="load_environment"):
        make_env("verifiers:json")


def test_an_environment_that_cannot_load_says_why() -> None:
    with pytest.raises(EnvError, match="RuntimeError"):
        play(sums(args={"nothing": 1}), ["0"])


def test_reasoning_gym_of_verifiers_plays() -> None:
    pytest.importorskip("reasoning_gym")
    env = make_env("verifiers:gym-classic", gym="leg_counting")
    wrong = rehearse(env, ["<answer>none</answer>"], timeout_s=SLOW_S)
    assert (wrong.reward, wrong.stop_reason, wrong.is_valid) == (0.0, StopReason.AGENT_DONE, True)
    assert {"check_answer_reward_func", "format_reward_func"} <= values(wrong).keys()

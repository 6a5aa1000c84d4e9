"""Rewards are shaped as the keys say, and episodes that a limit cut off can be left out of the loss."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import GRPO, RunShape, algorithms
from agentrl.algorithms.config import Estimator
from agentrl.algorithms.driver import assign, has_signal
from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import Column, Sample, samples_of
from agentrl.algorithms.shaping import format_meters, kl_values, overlong, reply_text
from agentrl.config.schema import AlgorithmSection
from agentrl.errors import AlgorithmError, ConfigError, CreditError
from agentrl.losses.kl import kl
from agentrl.types import Group, Message, StopReason, Trajectory
from tests.unit.algorithms.cases import advantages, algorithm, assigned, by_turn, group, trajectory

CUT = StopReason.MAX_TOKENS


def rewards(*values: float) -> Group:
    return group(*(trajectory(member, value) for member, value in enumerate(values)))


@pytest.mark.parametrize(("normalization", "share"), [("token", 2), ("sequence", 1), ("constant", 9)])
def test_a_masked_episode_has_no_weight_and_no_part_in_the_divisor(normalization: str, share: float) -> None:
    cut = trajectory(2, 0.0, lengths=(5,), stop_reason=CUT)
    rule = algorithm("grpo", RunShape(max_tokens=9), truncated="mask", normalization=normalization)
    samples = assigned(rule, group(trajectory(0, 1.0), trajectory(1, 0.0), cut))
    assert [sample.share for sample in samples] == [share, share, 0]
    assert [bool(np.all(sample.weights > 0)) for sample in samples] == [True, True, False]
    assert not np.any(samples[2].weights)


def with_columns(members: list[Sample]) -> list[Sample]:
    """Samples with columns that depend on the member alone."""
    for number, sample in enumerate(members):
        rng = np.random.default_rng(number)
        names: tuple[Column, ...] = ("old", "reference", "teacher", "values")
        sample.columns = {name: rng.normal(size=len(sample)) for name in names}
    return members


@pytest.mark.parametrize("keys", [{}, {"normalize_rewards": True}, {"kl_coef": 0.1, "kl_in": "reward"}])
@pytest.mark.parametrize("name", sorted(algorithms()))
def test_a_masked_episode_changes_the_credit_of_no_other(name: str, keys: dict[str, Any]) -> None:
    whole = [trajectory(0, 1.0, {0: 0.5}, (2, 1)), trajectory(1, 0.0, lengths=(3,))]
    cut = trajectory(2, 5.0, {1: 1.0}, lengths=(4, 3), stop_reason=CUT)
    rules, credit = [algorithm(name, truncated="mask", **keys) for _ in range(2)], []
    for rule, members in zip(rules, (whole, [*whole, cut]), strict=True):
        batch = samples_of([group(*members, greedy=whole[1]), group(trajectory(0, 0.5), trajectory(1, 0.25))])
        assign(rule, [with_columns(samples) for samples in batch])
        credit.append([(s.advantages.tolist(), s.weights.tolist(), s.share, str(s.returns)) for s in batch[0][:2]])
    assert credit[0] == credit[1]
    assert rules[0].state == rules[1].state


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_a_batch_of_masked_episodes_trains_nothing(name: str) -> None:
    batch = samples_of([group(*(trajectory(member, float(member), stop_reason=CUT) for member in range(3)))])
    assign(algorithm(name, truncated="mask", normalize_rewards=True), [with_columns(samples) for samples in batch])
    assert [(sample.share, np.any(sample.weights)) for sample in batch[0]] == [(0, False)] * 3


def test_a_group_with_too_few_episodes_besides_the_masked_ones_is_masked_whole() -> None:
    members = group(trajectory(0, 1.0), trajectory(1, 0.0, stop_reason=CUT))
    assert [sample.share for sample in assigned(algorithm("rloo", truncated="mask"), members)] == [0, 0]
    assert [sample.share for sample in assigned(algorithm("reinforce++", truncated="mask"), members)] == [2, 0]


def test_an_episode_that_was_cut_is_trained_by_default() -> None:
    members = group(trajectory(0, 1.0), trajectory(1, 0.0, stop_reason=CUT))
    assert [sample.share for sample in assigned(algorithm("grpo"), members)] == [2, 2]


def test_a_group_whose_differing_episodes_are_masked_has_no_signal() -> None:
    members = group(trajectory(0, 1.0), trajectory(1, 1.0), trajectory(2, 0.0, stop_reason=CUT))
    assert has_signal(algorithm("grpo"), members)
    assert not has_signal(algorithm("grpo", truncated="mask"), members)


@given(length=st.integers(1, 30))
def test_the_overlong_punishment_falls_linearly_over_the_buffer(length: int) -> None:
    """DAPO (Yu et al. 2025, arXiv:2503.14476, equation 13) with a limit of 20 and a buffer of 5."""
    [reward] = overlong(Sample.of(trajectory(0, 0.0, lengths=(length,))), 20, 5, 2.0) or [None]
    expected = 0.0 if length <= 15 else -2.0 * min(1.0, (length - 15) / 5)
    assert (reward.value if reward else 0.0) == pytest.approx(expected)


def test_only_the_turn_that_nears_its_limit_is_punished_and_what_led_to_it() -> None:
    long = trajectory(0, 0.0, lengths=(2, 10, 2))
    short = trajectory(1, 0.0, lengths=(2, 2, 2))
    rule = algorithm("rloo", RunShape(max_tokens=10), overlong_penalty=1.0)
    assert by_turn(rule, group(long, short)) == [[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]
    many = trajectory(0, 0.0, lengths=(2,) * 9)
    assert not any(advantages(rule, group(many, short))[0]), "a long episode of short turns is not punished"


def test_the_reward_of_a_turn_and_that_of_an_episode_are_clipped() -> None:
    [sample, _] = assigned(algorithm("rloo", reward_clip=1.0), group(trajectory(0, 5.0, {0: -3.0}), trajectory(1, 0.0)))
    assert sorted(reward.value for reward in sample.earned) == [-1.0, 1.0]


def test_clipping_bounds_the_sum_of_several_rewards_not_each() -> None:
    parts = trajectory(0, 0.0, {0: 0.8})
    signals = (*parts.signals, *(s for s in parts.signals if s.scope == "turn"))
    members = group(trajectory(0, 0.0, {0: 1.6}), trajectory(1, 0.0))
    doubled = Group(0, (type(parts)(**{f: getattr(parts, f) for f in parts.__slots__} | {"signals": signals}),))
    rule = algorithm("reinforce++", reward_clip=1.0)
    [clipped] = assigned(rule, doubled)
    [same, _] = assigned(rule, members)
    assert sorted(r.value for r in clipped.earned) == sorted(r.value for r in same.earned) == [0.0, 1.0]


@given(st.lists(st.lists(st.integers(-8, 8).map(float), min_size=2, max_size=5), min_size=1, max_size=4))
def test_rewards_are_divided_by_the_deviation_of_all_so_far(batches: list[list[float]]) -> None:
    """The population deviation of all rewards so far; the running form is Chan, Golub and LeVeque's of 1979."""
    rule, seen = algorithm("dr_grpo", normalize_rewards=True), []
    for batch in batches:
        seen += batch
        deviation = statistics.pstdev(seen) or 1.0
        got = [sample.advantages[0] for sample in assigned(rule, rewards(*batch))]
        assert got == pytest.approx([(value - statistics.fmean(batch)) / deviation for value in batch], abs=1e-9)
    assert rule.state["reward_count"] == len(seen)
    assert rule.state["reward_mean"] == pytest.approx(statistics.fmean(seen), abs=1e-9)


def test_the_running_scale_goes_on_from_a_saved_state() -> None:
    whole, resumed = (algorithm("dr_grpo", normalize_rewards=True) for _ in range(2))
    assigned(whole, rewards(1.0, 5.0))
    resumed.state = dict(whole.state)
    assert advantages(whole, rewards(2.0, 7.0)) == advantages(resumed, rewards(2.0, 7.0))


class Running(GRPO):
    """Counts the calls of `credit` in its state."""

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        self.state["calls"] = self.state.get("calls", 0) + 1
        super().credit(groups)


def test_to_look_for_a_signal_changes_no_state() -> None:
    rule = Running(Running.Config(normalize_rewards=True))
    assert has_signal(rule, rewards(1.0, 0.0))
    assert not has_signal(rule, rewards(1.0, 1.0))
    assert not rule.state
    assigned(rule, rewards(1.0, 0.0))
    assert rule.state["calls"] == 1


def test_a_kl_in_the_reward_leaves_the_choice_of_groups_with_a_signal_to_the_rewards() -> None:
    rule = algorithm("dapo", kl_coef=0.1, kl_in="reward")
    assert has_signal(rule, rewards(1.0, 0.0))
    assert not has_signal(rule, rewards(1.0, 1.0))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@given(differences=st.lists(st.floats(-40, 40), min_size=1, max_size=5))
def test_the_penalty_in_the_reward_is_the_estimate_of_the_loss(estimator: Estimator, differences: list[float]) -> None:
    """Schulman's k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d, with d = old - reference bounded to 10 nats."""
    d = np.clip(differences, -10, 10)
    expected = {"k1": d, "k2": d * d / 2, "k3": np.exp(-d) - 1 + d}[estimator]
    got = kl_values(np.array(differences), np.zeros(len(d)), estimator)
    in_loss = kl(estimator, torch.tensor(differences, dtype=torch.float64), torch.zeros(len(d), dtype=torch.float64))
    assert got == pytest.approx(expected, rel=1e-6)
    assert got == pytest.approx(in_loss.numpy())


def test_what_shapes_the_rewards_of_members_shapes_the_baseline_too() -> None:
    rule = algorithm("remax", reward_clip=1.0)
    [same] = advantages(rule, group(trajectory(0, 3.0), greedy=trajectory(1, 2.0)))
    assert same == [0.0, 0.0]


def test_a_sample_without_its_greedy_baseline_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="sample 0-0 has no greedy episode"):
        assigned(algorithm("remax"), Group(0, (trajectory(0, 1.0),)))


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_every_algorithm_has_the_keys_of_shaping(name: str) -> None:
    config = algorithm(name, truncated="mask", reward_clip=2.0, normalize_rewards=True, overlong_penalty=0.5).config
    assert config.overlong_penalty == 0.5


def saying(member: int, *replies: str | Message, reward: float = 0.0, agents: tuple[str, ...] = ()) -> Trajectory:
    """An episode with these replies, one in each turn."""
    plain = trajectory(member, reward, lengths=(2,) * len(replies), agents=agents)
    said: list[Message] = [
        {"role": "assistant", "content": reply} if isinstance(reply, str) else reply for reply in replies
    ]
    messages = [message for turn, reply in enumerate(said) for message in (plain.messages[2 * turn], reply)]
    return replace(plain, messages=tuple(messages))


FORMAT: dict[str, Any] = {"format_pattern": r"<answer>\d+</answer>$", "format_penalty": 0.5}


def test_a_last_reply_that_misses_its_format_costs_the_penalty_in_its_turn() -> None:
    rule = algorithm("rloo", **FORMAT)
    good, bad = saying(0, "thinking", "<answer>4</answer>"), saying(1, "<answer>4</answer>", "four")
    assert by_turn(rule, group(good, bad)) == [[0.5, 0.5], [-0.5, -0.5]], "earlier replies need no format"
    earned = [[(r.value, r.turn) for r in s.earned if r.turn is not None] for s in assigned(rule, group(good, bad))]
    assert earned == [[], [(-0.5, 1)]]
    assert format_meters([group(good, bad)], rule.config) == {"format_missed": 0.5}
    assert format_meters([group(good, bad)], algorithm("rloo").config) == {}


def test_without_a_penalty_a_missed_format_is_only_counted() -> None:
    rule = algorithm("rloo", format_pattern="^4$")
    members = group(saying(0, "4"), saying(1, "four"), saying(2, "five"))
    assert not any(map(any, advantages(rule, members)))
    assert format_meters([members], rule.config) == {"format_missed": pytest.approx(2 / 3)}


def test_each_agent_answers_for_its_own_last_reply() -> None:
    both = saying(0, "no", "<answer>1</answer>", "no", agents=("white", "black", "white"))
    [sample, _] = assigned(algorithm("rloo", **FORMAT), group(both, both))
    assert [(r.value, r.turn, r.agent) for r in sample.earned if r.turn is not None] == [(-0.5, 2, "white")]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"role": "assistant", "content": "4"}, "4"),
        ({"role": "assistant", "content": "4", "reasoning_content": "2+2"}, "<think>2+2</think>4"),
        ({"role": "assistant", "content": "", "reasoning_content": "2+2"}, "<think>2+2"),
        ({"role": "assistant", "content": [{"type": "text", "text": "4"}]}, "4"),
    ],
)
def test_the_text_of_a_reply_has_its_thinking_before_it(reply: Message, text: str) -> None:
    assert reply_text(reply) == text


def test_replies_that_were_not_recorded_are_an_error_and_not_a_mismatch() -> None:
    silent = replace(saying(0, "4"), messages=())
    with pytest.raises(CreditError, match=r"algorithm\.format_pattern reads replies, but the messages of sample 0-0"):
        assigned(algorithm("rloo", **FORMAT), group(silent, saying(1, "4")))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"format_pattern": "(a"},
            r"algorithm\.format_pattern must be a pattern of RE2 \(missing \): \(a\), got",
        ),
        ({"format_penalty": 0.5}, r"algorithm\.format_penalty has no effect without algorithm\.format_pattern"),
    ],
)
def test_keys_of_the_format_that_cannot_work_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_algorithm(AlgorithmSection.model_validate({"name": "grpo", **keys}))


@pytest.mark.parametrize("name", [name for name in algorithms() if name != "distillation"])
def test_a_penalty_in_the_reward_lowers_the_credit_of_the_episode_that_pays_it(name: str) -> None:
    """Distillation uses no reward."""

    def credit(kl: float) -> list[float]:
        [samples] = samples_of([rewards(1.0, 0.0, 1.0)])
        for member, sample in enumerate(samples):
            columns = {"old": kl * (member == 0) - 1.0, "reference": -1.0, "values": 0.0}
            sample.columns |= {name: np.full(len(sample), value) for name, value in columns.items()}
        assign(algorithm(name, kl_coef=0.1, kl_in="reward"), [samples])
        return [float(sample.advantages.mean()) for sample in samples]

    free, paid = credit(0.0), credit(2.0)
    assert paid[0] < free[0]
    assert paid[0] < paid[2]

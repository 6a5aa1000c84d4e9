"""PPO's advantages against formulas of the paper in float64, and against chains that are solved by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.credit import gae
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Array, Sample, samples_of
from agentrl.errors import AlgorithmError
from agentrl.types import Segment, StopReason, TokenSequence, Trajectory
from tests.unit.algorithms.cases import algorithm, group, trajectory

numbers = st.floats(-3, 3)
shares = st.sampled_from([0.0, 0.3, 0.95, 1.0])


def estimated(trajectory: Trajectory, values: Sequence[float], **keys: Any) -> Array:
    """The advantages of one sample before they are whitened: its returns minus its values."""
    sample = with_values(trajectory, values)
    assign(algorithm("ppo", **keys), [[sample]])
    assert sample.returns is not None
    return sample.returns - sample.columns["values"]


def with_values(trajectory: Trajectory, values: Sequence[float]) -> Sample:
    [[sample]] = samples_of([group(trajectory)])
    sample.columns["values"] = np.array(values, dtype=np.float64)
    return sample


def by_equation_16(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """Schulman et al. 2015, arXiv:1506.02438, equation 16.

    The sum of (gamma lambda)^l delta_{t+l}, delta the TD residual.
    """
    deltas = [r + gamma * after - before for r, before, after in zip(rewards, values, values[1:], strict=False)]
    return [
        math.fsum((gamma * lam) ** later * delta for later, delta in enumerate(deltas[step:]))
        for step in range(len(deltas))
    ]


@given(rows=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9), last=numbers, gamma=shares, lam=shares)
def test_gae_is_the_sum_of_the_paper(rows: list[tuple[float, float]], last: float, gamma: float, lam: float):
    rewards, values = [r for r, _ in rows], [*(v for _, v in rows), last]
    got = gae(np.array(rewards), np.array(values), np.full(len(rows), gamma), np.full(len(rows), lam))
    assert got == pytest.approx(by_equation_16(rewards, values, gamma, lam), abs=1e-9)


@given(kls=st.lists(numbers, min_size=3, max_size=3), values=st.lists(numbers, min_size=3, max_size=3), lam=shares)
def test_ppo_subtracts_the_kl_of_each_token_from_its_reward(kls: list[float], values: list[float], lam: float):
    """InstructGPT (Ouyang et al. 2022, arXiv:2203.02155, equation 2): r - beta log(policy / reference), by token."""
    sample = with_values(trajectory(0, 1.0, {0: 0.5, 1: 0.0}, (2, 1)), values)
    sample.columns |= {"old": np.array(kls) - 1.0, "reference": np.full(3, -1.0)}
    assign(algorithm("ppo", kl_coef=0.1, kl_in="reward", kl_estimator="k1", gae_lambda=lam), [[sample]])
    assert sample.returns is not None
    rewards = [earned - 0.1 * kl for earned, kl in zip([0.0, 0.5, 1.0], kls, strict=True)]
    expected = by_equation_16(rewards, [*values, 0.0], 1.0, lam)
    assert (sample.returns - sample.columns["values"]).tolist() == pytest.approx(expected, abs=1e-9)


@given(values=st.lists(numbers, min_size=6, max_size=6), gamma=shares, lam=shares)
def test_ppo_estimates_over_sampled_tokens_with_the_rewards_of_turns(values: list[float], gamma: float, lam: float):
    got = estimated(trajectory(0, 1.0, {0: 0.5, 1: -0.25}, (3, 1, 2)), values, gamma=gamma, gae_lambda=lam)
    wanted = by_equation_16([0, 0, 0.5, -0.25, 0, 1.0], [*values, 0.0], gamma, lam)
    assert got == pytest.approx(wanted, abs=1e-9)


def with_answer(tokens: int) -> Trajectory:
    """Two turns, with an answer of a tool between them."""
    first, second = (Segment((5, 6), is_action=True, logprobs=(-1.0, -1.0), turn=turn) for turn in range(2))
    segments = (Segment((7,), is_action=False), first, Segment((8,) * tokens, is_action=False), second)
    return replace(trajectory(0, 1.0, {0: 0.5}), sequences=(TokenSequence(segments),))


@pytest.mark.parametrize("discount_by", ["token", "turn"])
def test_the_length_of_a_tools_answer_changes_no_advantage(discount_by: str):
    keys = {"gamma": 0.9, "gae_lambda": 0.8, "discount_by": discount_by}
    values = [0.1, 0.2, 0.3, 0.4]
    assert estimated(with_answer(1), values, **keys).tolist() == estimated(with_answer(500), values, **keys).tolist()


def test_without_lambda_an_advantage_is_the_error_of_one_step_and_with_it_the_return_minus_the_value():
    values = [0.25, 0.5, 0.75]
    row = trajectory(0, 1.0, lengths=(2, 1))
    assert estimated(row, values, gae_lambda=0.0) == pytest.approx([0.25, 0.25, 0.25])
    assert estimated(row, values, gae_lambda=1.0) == pytest.approx([0.75, 0.5, 0.25])


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_the_true_values_of_a_chain_leave_no_advantage(lam: float):
    """A chain that pays 1 at its end, discounted by 0.9 a step: V = 0.9^(steps to the end)."""
    values = [0.9**3, 0.9**2, 0.9, 1.0]
    got = estimated(trajectory(0, 1.0, lengths=(1, 1, 1, 1)), values, gamma=0.9, gae_lambda=lam)
    assert got == pytest.approx([0.0] * 4, abs=1e-12)


@given(values=st.lists(numbers, min_size=5, max_size=5), gamma=shares, lam=shares)
def test_by_turn_the_first_tokens_of_turns_are_the_steps_of_the_paper(values: list[float], gamma: float, lam: float):
    got = estimated(
        trajectory(0, 1.0, {0: 0.5, 1: -0.25}, (2, 2, 1)), values, gamma=gamma, gae_lambda=lam, discount_by="turn"
    )
    firsts = [0, 2, 4]
    wanted = by_equation_16([0.5, -0.25, 1.0], [*(values[n] for n in firsts), 0.0], gamma, lam)
    assert [got[n] for n in firsts] == pytest.approx(wanted, abs=1e-9)
    # Within a turn every token has the same return.
    assert got[1] + values[1] == pytest.approx(got[0] + values[0], abs=1e-9)


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.MAX_TURNS, StopReason.CONTEXT_OVERFLOW])
def test_an_episode_that_was_cut_and_scored_counts_as_ended_unless_it_is_bootstrapped(reason: StopReason):
    values, keys = [0.5, 0.8], {"gamma": 0.9, "gae_lambda": 1.0}
    ended, cut = trajectory(0, 1.0), trajectory(0, 1.0, stop_reason=reason)
    assert estimated(cut, values, **keys).tolist() == estimated(ended, values, **keys).tolist()
    bootstrapped = estimated(cut, values, **keys, bootstrap_truncated=True)
    assert bootstrapped == pytest.approx(by_equation_16([0.0, 0.8], [0.5, 0.8, 0.0], 0.9, 1.0))
    assert estimated(ended, values, **keys, bootstrap_truncated=True) == pytest.approx([0.9 - 0.5, 1.0 - 0.8])


def test_an_endless_chain_that_is_cut_has_no_advantage_only_with_bootstrapping():
    """Every step pays 1 and nothing ends: V = 1 / (1 - gamma) in each state, wherever a limit cuts."""
    values = [10.0] * 3
    cut = trajectory(0, 0.0, {0: 1.0, 1: 1.0, 2: 1.0}, (1, 1, 1), stop_reason=StopReason.MAX_TURNS)
    assert estimated(cut, values, gamma=0.9, bootstrap_truncated=True) == pytest.approx([0.0] * 3)
    assert max(estimated(cut, values, gamma=0.9)) < -5


@given(reward=numbers, first=numbers, last=numbers, gamma=shares, lam=shares)
def test_a_bootstrapped_critic_that_fits_its_targets_settles(
    reward: float, first: float, last: float, gamma: float, lam: float
):
    """The value of the last state contains the last reward: to add it again raises the target in every step."""
    cut, values = trajectory(0, reward, stop_reason=StopReason.MAX_TOKENS), np.array([first, last])
    for _ in range(3):
        errors = estimated(cut, values.tolist(), gamma=gamma, gae_lambda=lam, bootstrap_truncated=True)
        assert errors[-1] == 0
        values = values + errors
    assert values == pytest.approx([gamma * last, last], abs=1e-9)


def test_each_agent_is_credited_along_its_own_turns():
    """The agents a and b take turns; a's second turn pays."""
    row = trajectory(0, 0.0, lengths=(1, 1, 1), agents=("a", "b", "a"))
    signal = replace(row.signals[0], value=1.0, agent="a")
    got = estimated(replace(row, signals=(signal,)), [0.0] * 3, gamma=0.5)
    assert got.tolist() == [0.5, 0.0, 1.0]


def test_returns_are_advantages_plus_values_and_advantages_are_whitened_over_the_batch():
    samples = [[with_values(trajectory(n, n % 2, lengths=(2, 1)), [0.1 * n, 0.2, 0.3]) for n in range(3)] for _ in "ab"]
    raw = [estimated(s.trajectory, s.columns["values"]) for members in samples for s in members]
    assign(algorithm("ppo"), samples)
    flat, whole = [s for members in samples for s in members], np.concatenate(raw)
    for sample, before in zip(flat, raw, strict=True):
        assert sample.returns == pytest.approx(before + sample.columns["values"])
        assert sample.advantages == pytest.approx((before - whole.mean()) / whole.std(), abs=1e-6)


def test_an_algorithm_with_a_critic_that_sets_no_returns_is_refused():
    class Forgetful(type(algorithm("ppo"))):  # type: ignore[misc]
        def credit(self, groups: object) -> None: ...

    with pytest.raises(AlgorithmError, match="returns"):
        assign(Forgetful(), [[with_values(trajectory(0, 1.0), [0.0, 0.0])]])

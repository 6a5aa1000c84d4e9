from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import algorithm, algorithms
from agentrl.errors import UnknownNameError
from agentrl.types import Group, SampleId, Segment, Signal, StopReason, TokenSequence, Trajectory

NAMES = sorted(algorithms())


def trajectory(member: int, reward: float, turns: dict[int, float] | None = None, lengths: tuple[int, ...] = (2,)):
    """One sequence: for each turn one context token, then as many sampled ones as `lengths` says."""
    segments = []
    for turn, length in enumerate(lengths):
        segments += [Segment((7,), is_action=False, turn=turn)]
        segments += [Segment((5,) * length, is_action=True, logprobs=(-1.0,) * length, turn=turn)]
    signals = [Signal("r", reward), *(Signal("t", v, scope="turn", turn=k) for k, v in (turns or {}).items())]
    return Trajectory(
        SampleId(0, member),
        0,
        "train",
        0,
        "0",
        (TokenSequence(tuple(segments)),),
        (),
        tuple(signals),
        StopReason.ENV_DONE,
    )


def group(*members: Trajectory) -> Group:
    return Group(0, members)


def test_grpo_subtracts_the_mean_and_divides_by_the_sample_deviation_of_its_group():
    [[a, b, c, d]] = algorithm("grpo").advantages([group(*(trajectory(i, r) for i, r in enumerate([1, 0, 0, 1])))])
    scale = math.sqrt(4 * 0.25 / 3) + 1e-4
    assert a == d == [[0.0, pytest.approx(0.5 / scale), pytest.approx(0.5 / scale)]]
    assert b == c == [[0.0, pytest.approx(-0.5 / scale), pytest.approx(-0.5 / scale)]]


def test_rloo_subtracts_the_mean_of_the_others():
    [[a, b, c]] = algorithm("rloo").advantages([group(*(trajectory(i, r) for i, r in enumerate([3, 0, 1])))])
    assert [a, b, c] == [[[0.0, 2.5, 2.5]], [[0.0, -2.0, -2.0]], [[0.0, -0.5, -0.5]]]


def test_reinforce_pp_normalises_over_all_action_tokens_of_the_batch():
    groups = [group(trajectory(0, 1.0, lengths=(3,))), group(trajectory(0, 0.0, lengths=(1,)))]
    [[a], [b]] = algorithm("reinforce++").advantages(groups)
    mean, std = 0.75, math.sqrt(0.75 * 0.25) + 1e-8
    assert a == [[0.0] + [pytest.approx((1 - mean) / std)] * 3]
    assert b == [[0.0, pytest.approx(-mean / std)]]


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_reward_credits_its_own_turn_and_the_earlier_ones_only(name: str):
    late = trajectory(0, 0.0, {1: 1.0}, (1, 1, 1))
    none = trajectory(1, 0.0, {1: 0.0}, (1, 1, 1))
    [[rewarded, plain]] = algorithm(name).advantages([group(late, none)])
    first, second, third = (rewarded[0][place] - plain[0][place] for place in (1, 3, 5))
    assert first == pytest.approx(second)
    assert first > 0
    assert third == pytest.approx(0.0)


@pytest.mark.parametrize("name", NAMES)
@given(reward=st.floats(-1e3, 1e3), size=st.integers(2, 7))
def test_equal_rewards_teach_exactly_nothing(name: str, reward: float, size: int):
    rows = algorithm(name).advantages([group(*(trajectory(i, reward) for i in range(size)))])
    assert rows == [[[[0.0, 0.0, 0.0]]] * size]


@pytest.mark.parametrize("name", NAMES)
@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=6), shift=st.floats(-5, 5))
def test_a_constant_added_to_every_reward_changes_no_advantage(name: str, rewards: list[float], shift: float):
    if len(set(rewards)) > 1 and statistics.pstdev(rewards) < 1e-3:
        return  # at the scale of epsilon rounding decides
    base = algorithm(name).advantages([group(*(trajectory(i, r) for i, r in enumerate(rewards)))])
    moved = algorithm(name).advantages([group(*(trajectory(i, r + shift) for i, r in enumerate(rewards)))])
    for one, other in zip(base[0], moved[0], strict=True):
        assert one[0] == pytest.approx(other[0], abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_context_tokens_get_nothing_and_rows_align_with_ids(name: str):
    members = [trajectory(0, 1.0, lengths=(2, 3)), trajectory(1, 0.0, lengths=(1, 4))]
    [rows] = algorithm(name).advantages([group(*members)])
    for member, row in zip(members, rows, strict=True):
        [sequence] = member.sequences
        assert len(row[0]) == len(sequence.ids)
        assert all((value != 0) == bool(mask) for value, mask in zip(row[0], sequence.mask, strict=True))


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'grpo'"):
        algorithm("grppo")

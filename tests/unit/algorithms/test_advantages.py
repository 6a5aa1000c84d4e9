from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import Algorithm, algorithms, by_hand
from agentrl.algorithms.driver import assign, has_signal
from agentrl.algorithms.sample import samples_of
from agentrl.errors import CreditError, UnknownNameError
from agentrl.types import Group, Trajectory
from tests.unit.algorithms.cases import algorithm, group, trajectory

# What needs columns of a model has tests of its own.
NAMES = sorted(name for name, cls in algorithms().items() if not cls.needs.columns)
# GiGPO gives the reward of the whole episode to every turn.
BY_TURN = sorted({*NAMES} - {"gigpo"})


def credited(rule: Algorithm, groups: list[Group]) -> list[list[list[list[float]]]]:
    """Advantages by [group][member][sequence][token], 0.0 on context tokens."""
    samples = samples_of(groups)
    assign(rule, samples)
    out = []
    for members in samples:
        rows = []
        for sample in members:
            parts = zip(sample.trajectory.sequences, sample.split(sample.advantages), strict=True)
            rows.append([spread_out(sequence.mask, values.tolist()) for sequence, values in parts])
        out.append(rows)
    return out


def spread_out(mask: list[int], values: list[float]) -> list[float]:
    remaining = iter(values)
    return [next(remaining) if bit else 0.0 for bit in mask]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_reward_that_is_not_finite_is_refused_with_its_sample(value: float) -> None:
    with pytest.raises(CreditError, match="grpo: a reward of sample 0-1 is not finite"):
        assign(algorithm("grpo"), [by_hand([0.0, value, 1.0])])


def test_grpo_subtracts_the_mean_and_divides_by_the_sample_deviation_of_its_group():
    [[a, b, c, d]] = credited(algorithm("grpo"), [group(*(trajectory(i, r) for i, r in enumerate([1, 0, 0, 1])))])
    scale = math.sqrt(4 * 0.25 / 3) + 1e-4
    assert a == d == [[0.0, pytest.approx(0.5 / scale), pytest.approx(0.5 / scale)]]
    assert b == c == [[0.0, pytest.approx(-0.5 / scale), pytest.approx(-0.5 / scale)]]


def test_rloo_subtracts_the_mean_of_the_others():
    [[a, b, c]] = credited(algorithm("rloo"), [group(*(trajectory(i, r) for i, r in enumerate([3, 0, 1])))])
    assert [a, b, c] == [[[0.0, 2.5, 2.5]], [[0.0, -2.0, -2.0]], [[0.0, -0.5, -0.5]]]


def test_reinforce_pp_normalises_over_all_action_tokens_of_the_batch():
    groups = [group(trajectory(0, 1.0, lengths=(3,))), group(trajectory(0, 0.0, lengths=(1,)))]
    [[a], [b]] = credited(algorithm("reinforce++"), groups)
    mean, std = 0.75, math.sqrt(0.75 * 0.25) + 1e-8
    assert a == [[0.0] + [pytest.approx((1 - mean) / std)] * 3]
    assert b == [[0.0, pytest.approx(-mean / std)]]


@pytest.mark.parametrize("name", BY_TURN)
def test_a_turn_reward_credits_its_own_turn_and_the_earlier_ones_only(name: str):
    late = trajectory(0, 0.0, {1: 1.0}, (1, 1, 1))
    none = trajectory(1, 0.0, {1: 0.0}, (1, 1, 1))
    [[rewarded, plain]] = credited(algorithm(name), [group(late, none)])
    first, second, third = (rewarded[0][token] - plain[0][token] for token in (1, 3, 5))
    assert first == pytest.approx(second)
    assert first > 0
    assert third == pytest.approx(0.0)


@pytest.mark.parametrize("name", NAMES)
@given(reward=st.floats(-1e3, 1e3), size=st.integers(2, 7))
def test_equal_rewards_give_exactly_zero(name: str, reward: float, size: int):
    rows = credited(algorithm(name), [group(*(trajectory(i, reward) for i in range(size)))])
    assert rows == [[[[0.0, 0.0, 0.0]]] * size]


@pytest.mark.parametrize("name", NAMES)
@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=6), shift=st.floats(-5, 5))
def test_a_constant_added_to_every_reward_changes_no_advantage(name: str, rewards: list[float], shift: float):
    if len(set(rewards)) > 1 and statistics.pstdev(rewards) < 1e-3:
        return  # at the scale of epsilon rounding decides
    base = credited(algorithm(name), [group(*(trajectory(i, r) for i, r in enumerate(rewards)))])
    moved = credited(algorithm(name), [group(*(trajectory(i, r + shift) for i, r in enumerate(rewards)))])
    for one, other in zip(base[0], moved[0], strict=True):
        assert one[0] == pytest.approx(other[0], abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_context_tokens_get_zero_and_rows_align_with_ids(name: str):
    members = [trajectory(0, 1.0, lengths=(2, 3)), trajectory(1, 0.0, lengths=(1, 4))]
    greedy = trajectory(2, 0.25)
    [rows] = credited(algorithm(name), [group(*members, greedy=greedy)])
    for member, row in zip(members, rows, strict=True):
        [sequence] = member.sequences
        assert len(row[0]) == len(sequence.ids)
        assert all((value != 0) == bool(mask) for value, mask in zip(row[0], sequence.mask, strict=True))


def first_tokens(name: str, *members: Trajectory) -> list[list[float]]:
    """[member][turn]: the advantage of the first action token of each turn."""
    [rows] = credited(algorithm(name), [group(*members)])
    return [
        [row[0][token] for token, bit in enumerate(m.sequences[0].mask) if bit and not m.sequences[0].mask[token - 1]]
        for m, row in zip(members, rows, strict=True)
    ]


def test_grpo_keeps_the_authors_weights_and_never_rewards_a_lost_game_for_small_turn_rewards():
    # Eight games: three are won; a legal call is worth 0.1, and the fourth member lost and made two of them.
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    calls = [{0: 0.1}, {0: 0.1, 1: 0.0}, {}, {0: 0.1, 1: 0.1}, {0: 0.1}, {}, {0: 0.0}, {0: 0.0, 1: 0.0}]
    members = [
        trajectory(member, reward, turns, (1,) * max(1, len(turns)))
        for member, (reward, turns) in enumerate(zip(rewards, calls, strict=True))
    ]
    at_first = [turns[0] for turns in first_tokens("grpo", *members)]
    assert max(at_first[3:]) < 0 < min(at_first[:3])
    without = [turns[0] for turns in first_tokens("rloo", *members)]
    assert [a > b for a in at_first for b in at_first] == [a > b for a in without for b in without]


@pytest.mark.parametrize("weight", [1.0, 0.05, 0.002])
def test_grpo_credits_a_turn_reward_by_its_weight(weight: float):
    lost, won = trajectory(0, 0.0, {0: weight}, (1, 1)), trajectory(1, 1.0, {0: 0.0}, (1, 1))
    [lost_first, lost_second], [won_first, _] = first_tokens("grpo", lost, won)
    assert lost_first == pytest.approx(-won_first)
    # From the first turn on the returns are `weight` and 1, from the second 0 and 1.
    assert lost_first / lost_second == pytest.approx(1 - weight, abs=1e-9)


def test_grpo_scales_by_the_deviation_of_its_returns():
    """Totals are equal but earned at different turns: their deviation is 0, that of the returns-to-go is not."""
    early, late = trajectory(0, 0.0, {0: 1.0}, (1, 1)), trajectory(1, 0.0, {1: 1.0}, (1, 1))
    [early_first, early_second], [late_first, late_second] = first_tokens("grpo", early, late)
    assert early_first == late_first == 0.0
    scale = math.sqrt((0.5**2 + 0.5**2) / 2)  # two turns, G - 1 = 1
    assert late_second == pytest.approx(0.5 / (scale + 1e-4))
    assert early_second == -late_second


def test_grpo_counts_an_episode_that_has_ended_with_its_episode_reward():
    short, long = trajectory(0, 1.0, {0: 0.5}, (2,)), trajectory(1, 0.0, {2: 0.6}, (1, 1, 3))
    [[alone], [first, second, third]] = first_tokens("grpo", short, long)
    differences = [1.5 - 0.6, 1.0 - 0.6, 1.0 - 0.6]
    scale = math.sqrt(sum(2 * (d / 2) ** 2 for d in differences) / 3) + 1e-4
    assert [alone, first, second, third] == pytest.approx(
        [differences[0] / 2 / scale, *(-d / 2 / scale for d in differences)]
    )


@pytest.mark.parametrize("name", NAMES)
def test_rewards_that_differ_by_rounding_are_equal(name: str):
    rows = credited(algorithm(name), [group(trajectory(0, 0.1 + 0.2), trajectory(1, 0.3))])
    assert rows == [[[[0.0, 0.0, 0.0]]] * 2]


def test_a_group_of_equal_totals_has_a_signal_where_its_turns_differ():
    early, late = trajectory(0, 0.0, {0: 1.0}, (1, 1)), trajectory(1, 0.0, {1: 1.0}, (1, 1))
    same = group(trajectory(0, 1.0), trajectory(1, 1.0))
    for name in {*NAMES} - {"reinforce++", "reinforce++-baseline"}:
        assert has_signal(algorithm(name), group(early, late))
        assert not has_signal(algorithm(name), same)
    for name in ("reinforce++", "reinforce++-baseline"):
        assert has_signal(algorithm(name), same)  # the batch decides


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'grpo'"):
        algorithm("grppo")

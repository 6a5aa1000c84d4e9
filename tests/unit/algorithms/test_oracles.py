"""Every advantage equals a float64 reference written from its paper's formula, with plain Python numbers."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import Algorithm, RunShape, Sample
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import samples_of
from agentrl.types import Group
from tests.unit.algorithms.cases import algorithm, group, trajectory

# Multiples of a power of two: sums are exact, so that equal returns are equal numbers.
VALUES = st.integers(-16, 16).map(lambda number: number / 8)


@dataclass(frozen=True)
class Played:
    """An episode in plain numbers: its reward, and the reward and the number of tokens of each turn."""

    reward: float
    turns: tuple[float, ...]
    lengths: tuple[int, ...]

    def to_go(self, turn: int) -> float:
        """R(t): what the episode still earns from a turn on."""
        return self.reward + sum(self.turns[turn:])


@st.composite
def episodes(draw: Any, turns: int = 3) -> Played:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=turns))
    rewards = draw(st.lists(VALUES, min_size=len(lengths), max_size=len(lengths)))
    return Played(draw(VALUES), tuple(rewards), tuple(lengths))


GROUPS = st.lists(episodes(), min_size=2, max_size=5)
OUTCOMES = st.lists(episodes(turns=1).map(lambda e: Played(e.reward, (0.0,), e.lengths)), min_size=2, max_size=5)
BATCHES = st.lists(GROUPS, min_size=1, max_size=3)


def of(played: list[Played], greedy: Played | None = None) -> Group:
    members = [
        trajectory(i, e.reward, dict(enumerate(e.turns)), e.lengths) for i, e in enumerate([*played, greedy]) if e
    ]
    return group(*members[: len(played)], greedy=members[-1])


def credited(rule: Algorithm, *groups: Group) -> list[list[Sample]]:
    samples = samples_of(groups)
    assign(rule, samples)
    return samples


def check(
    rule: Algorithm, batch: list[list[Played]], expected: list[list[list[float]]], tolerance: float = 1e-9
) -> None:
    """`expected[group][member][turn]` on every token of the turn, or one number per token."""
    for samples, members, played in zip(credited(rule, *map(of, batch)), expected, batch, strict=True):
        for sample, values, episode in zip(samples, members, played, strict=True):
            by_token = [v for v, length in zip(values, episode.lengths, strict=True) for _ in range(length)]
            assert sample.advantages.tolist() == pytest.approx(by_token, rel=tolerance, abs=tolerance)


def whitened(batch: list[list[list[float]]], played: list[list[Played]]) -> list[list[list[float]]]:
    """(A - mean) / (std + 1e-8) over all tokens; all 0 if they are equal.

    The normalisation of REINFORCE++ (Hu et al. 2025, arXiv:2501.03262).
    """
    tokens = [
        value
        for members, episodes in zip(batch, played, strict=True)
        for values, episode in zip(members, episodes, strict=True)
        for value, length in zip(values, episode.lengths, strict=True)
        for _ in range(length)
    ]
    mean, deviation = math.fsum(tokens) / len(tokens), statistics.pstdev(tokens)
    if deviation < 1e-9:
        return [[[0.0 for _ in values] for values in members] for members in batch]
    return [[[(value - mean) / (deviation + 1e-8) for value in values] for values in members] for members in batch]


@given(OUTCOMES)
def test_grpo_equals_the_papers_outcome_supervision(played: list[Played]) -> None:
    """DeepSeekMath (Shao et al. 2024, arXiv:2402.03300, section 4.1.2).

    A_i,t = (r_i - mean(r)) / std(r), with TRL's 1e-4.
    """
    rewards = [episode.reward for episode in played]
    scale = statistics.stdev(rewards) + 1e-4
    expected = [[(reward - statistics.fmean(rewards)) / scale] for reward in rewards]
    for name in ("grpo", "gspo", "cispo"):  # GSPO equation 5 and CISPO equation 4 take GRPO's advantage
        check(algorithm(name), [played], [expected])


@given(OUTCOMES)
def test_grpo_with_normalization_sequence_is_the_papers_mean_over_each_answer(played: list[Played]) -> None:
    """DeepSeekMath (Shao et al. 2024, arXiv:2402.03300, equation 3): 1/G sum_i 1/|o_i| sum_t."""
    for sample, episode in zip(
        credited(algorithm("grpo", normalization="sequence"), of(played))[0], played, strict=True
    ):
        assert sample.weights.tolist() == [1 / episode.lengths[0]] * episode.lengths[0]
        assert sample.share == 1.0


@given(OUTCOMES, st.integers(1, 9))
def test_dr_grpo_equals_its_paper_in_advantage_and_normalisation(played: list[Played], limit: int) -> None:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, section 3.2).

    A_i,t = R_i - mean(R), tokens divided by a constant.
    """
    rewards = [episode.reward for episode in played]
    rule = algorithm("dr_grpo", constant=limit)
    check(rule, [played], [[[reward - statistics.fmean(rewards)] for reward in rewards]])
    for sample in credited(rule, of(played))[0]:
        assert sample.share == limit
        assert set(sample.weights) == {1.0}


@given(GROUPS)
def test_rloo_equals_the_leave_one_out_estimator_by_turn(played: list[Played]) -> None:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740, section 2.3).

    R_i - 1/(k-1) sum_{j != i} R_j, with returns-to-go as R.
    """
    expected = [
        [
            episode.to_go(turn) - statistics.fmean(e.to_go(turn) for j, e in enumerate(played) if j != i)
            for turn in range(len(episode.turns))
        ]
        for i, episode in enumerate(played)
    ]
    check(algorithm("rloo"), [played], [expected])


@given(BATCHES)
def test_reinforce_pp_equals_returns_normalised_over_the_batch(batch: list[list[Played]]) -> None:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262, "Global Advantage Normalization").

    A = (return - mean over the batch) / std over the batch, per token.
    """
    returns = [[[e.to_go(turn) for turn in range(len(e.turns))] for e in played] for played in batch]
    check(algorithm("reinforce++"), batch, whitened(returns, batch), 1e-6)


@given(BATCHES)
def test_reinforce_pp_baseline_subtracts_the_group_mean_then_normalises(batch: list[list[Played]]) -> None:
    """Hu et al. 2025, arXiv:2501.03262, "REINFORCE++ w/ Baseline": R - mean of the group, then as REINFORCE++."""
    centred = [
        [
            [e.to_go(turn) - statistics.fmean(other.to_go(turn) for other in played) for turn in range(len(e.turns))]
            for e in played
        ]
        for played in batch
    ]
    check(algorithm("reinforce++-baseline"), batch, whitened(centred, batch), 1e-6)


@given(GROUPS, episodes())
def test_remax_subtracts_what_the_greedy_episode_earns(played: list[Played], greedy: Played) -> None:
    """ReMax (Li et al. 2023, arXiv:2310.10505, algorithm 1).

    Reward of the sampled answer minus that of the greedy one.
    """
    [samples] = credited(algorithm("remax"), of(played, greedy))
    for sample, episode in zip(samples, played, strict=True):
        expected = [
            episode.to_go(turn) - greedy.to_go(turn) for turn, n in enumerate(episode.lengths) for _ in range(n)
        ]
        assert sample.advantages.tolist() == pytest.approx(expected, abs=1e-12)


@given(GROUPS, st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.5, 0.95, 1.0]), st.booleans())
def test_gigpo_equals_its_paper(played: list[Played], omega: float, gamma: float, scaled: bool) -> None:
    """GiGPO (Feng et al. 2025, arXiv:2505.10978, equations 3 and 5 to 8): A_E + omega A_S.

    In these episodes turn t is anchor state t.
    """

    def normalised(values: list[float]) -> list[float]:
        mean = statistics.fmean(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return [(value - mean) / (deviation + 1e-6 if scaled else 1.0) for value in values]

    def discounted(episode: Played, turn: int) -> float:
        earned = [*episode.turns[:-1], episode.turns[-1] + episode.reward]
        return sum(gamma ** (k - turn) * value for k, value in enumerate(earned) if k >= turn)

    totals = normalised([episode.to_go(0) for episode in played])
    expected = [[total] * len(episode.turns) for total, episode in zip(totals, played, strict=True)]
    for turn in range(3):
        at = [i for i, episode in enumerate(played) if turn < len(episode.turns)]
        if at:
            steps = normalised([discounted(played[i], turn) for i in at])
            for i, step in zip(at, steps, strict=True):
                expected[i][turn] += omega * step
    rule = algorithm("gigpo", step_weight=omega, gamma=gamma, scale_rewards=scaled)
    check(rule, [played], [expected], 1e-6)


def test_gigpo_compares_turns_by_their_state_wherever_they_are() -> None:
    """Equations 6 and 7: state x occurs twice in one member and once, later, in the other; omega 1, gamma 0.5."""
    members = [
        trajectory(0, 1.0, {0: 0.0, 1: 0.0, 2: 0.0}, (1, 1, 1), states=("s", "x", "x")),
        trajectory(1, 0.0, {0: 4.0, 1: 2.0}, (1, 1), states=("y", "x")),
    ]
    rule = algorithm("gigpo", step_weight=1.0, gamma=0.5, scale_rewards=False)
    of_episodes = [1.0 - 3.5, 6.0 - 3.5]
    to_go = [0.5, 1.0, 2.0]  # of the three turns that begin at x
    steps = [value - statistics.fmean(to_go) for value in to_go]
    expected = [[of_episodes[0], of_episodes[0] + steps[0], of_episodes[0] + steps[1]], [2.5, 2.5 + steps[2]]]
    [samples] = credited(rule, group(*members))
    for sample, values in zip(samples, expected, strict=True):
        assert sample.advantages.tolist() == pytest.approx(values)


@given(OUTCOMES, st.integers(1, 6), st.integers(1, 6))
def test_dapo_adds_the_soft_overlong_punishment(played: list[Played], limit: int, cache: int) -> None:
    """DAPO (Yu et al. 2025, arXiv:2503.14476): equation 13 (section 3.4), then the advantage of equation 9."""

    def punishment(length: int) -> float:
        if length <= limit - cache:
            return 0.0
        return ((limit - cache) - length) / cache if length <= limit else -1.0

    rewards = [episode.reward + punishment(episode.lengths[0]) for episode in played]
    deviation = statistics.stdev(rewards)
    if 0 < deviation < 1e-6:
        return
    expected = [[(reward - statistics.fmean(rewards)) / (deviation + 1e-4)] for reward in rewards]
    check(algorithm("dapo", RunShape(max_tokens=limit), overlong_buffer=cache), [played], [expected], 1e-6)


KL = {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: math.exp(-d) - 1 + d}


def penalised(name: str, estimator: str, played: list[Played], seed: int) -> tuple[list[Sample], list[list[float]]]:
    """The credited samples of a group with random logprobs, and the penalty of each of their tokens.

    `KL` has the estimators of Schulman 2020 (joschu.net/blog/kl-approx.html) with d = old - reference.
    """
    rng, coefficient = np.random.default_rng(seed), 0.1
    [samples] = samples_of([of(played)])
    for sample in samples:
        sample.columns = {"old": rng.normal(size=len(sample)), "reference": rng.normal(size=len(sample))}
    assign(algorithm(name, kl_coef=coefficient, kl_in="reward", kl_estimator=estimator), [samples])
    differences = [(sample.columns["old"] - sample.columns["reference"]).tolist() for sample in samples]
    return samples, [[coefficient * KL[estimator](d) for d in row] for row in differences]


@pytest.mark.parametrize("estimator", KL)
@given(played=GROUPS, seed=st.integers(0, 2**32 - 1))
def test_rloo_adds_up_the_kl_penalty_of_a_turn_and_all_later_ones(
    estimator: str, played: list[Played], seed: int
) -> None:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740, section 2).

    R = r - beta KL of the whole answer; TRL and verl do the same.
    """
    samples, penalties = penalised("rloo", estimator, played, seed)
    turns = [sample.turns.tolist() for sample in samples]

    def to_go(member: int, first: int) -> float:
        paid = (kl for kl, turn in zip(penalties[member], turns[member], strict=True) if turn >= first)
        return played[member].to_go(first) - math.fsum(paid)

    for member, sample in enumerate(samples):
        others = [other for other in range(len(played)) if other != member]
        expected = [to_go(member, turn) - statistics.fmean(to_go(i, turn) for i in others) for turn in turns[member]]
        assert sample.advantages.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("estimator", KL)
@given(played=GROUPS, seed=st.integers(0, 2**32 - 1))
def test_reinforce_pp_adds_up_the_kl_penalty_from_each_token_on(
    estimator: str, played: list[Played], seed: int
) -> None:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262): A_t = r - beta sum_{i >= t} KL(i), normalised over the batch."""
    samples, penalties = penalised("reinforce++", estimator, played, seed)
    returns = [
        [played[member].to_go(turn) - math.fsum(penalties[member][token:]) for token, turn in enumerate(sample.turns)]
        for member, sample in enumerate(samples)
    ]
    tokens = [value for row in returns for value in row]
    mean, deviation = statistics.fmean(tokens), statistics.pstdev(tokens)
    for sample, row in zip(samples, returns, strict=True):
        expected = [(value - mean) / (deviation + 1e-8) for value in row]
        assert sample.advantages.tolist() == pytest.approx(expected, abs=1e-6)

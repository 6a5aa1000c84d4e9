"""The expected gradient on a chain and on a bandit small enough to enumerate is the one computed in closed form.

PPO's closed forms are in test_ppo.py, that of distillation in test_distillation.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import Algorithm
from agentrl.algorithms.registry import algorithms
from agentrl.types import Trajectory
from tests.unit.algorithms.cases import algorithm, by_turn, group, trajectory

CHANCES = st.floats(0.1, 0.9)
VALUES = st.integers(-8, 8).map(lambda number: number / 4)
PATHS = ((0,), (1, 0), (1, 1))


@dataclass(frozen=True)
class Chain:
    """Action 0 ends the episode, action 1 leads to a second choice; every choice is a sigmoid of one logit.

    `chances` are those of action 1 in the first and in the second turn, `rewards` those at the end of each path, and
    `at_once` that of the first turn's action 1.
    """

    chances: tuple[float, float]
    rewards: tuple[float, float, float]
    at_once: float

    def probability(self, path: tuple[int, ...]) -> float:
        return math.prod(p if action else 1 - p for action, p in zip(path, self.chances, strict=False))

    def play(self, member: int, path: tuple[int, ...]) -> Trajectory:
        turns = {0: self.at_once} if path[0] else {}
        return trajectory(member, self.rewards[PATHS.index(path)], turns, lengths=(1,) * len(path))

    @property
    def gradient(self) -> tuple[float, float]:
        """dJ/dlogit of both choices, in closed form: the policy gradient theorem (Sutton et al. 1999, theorem 1)."""
        (p, q), (stop, low, high) = self.chances, self.rewards
        further = self.at_once + (1 - q) * low + q * high
        return p * (1 - p) * (further - stop), p * q * (1 - q) * (high - low)

    def estimate(self, rule: Algorithm, greedy: tuple[int, ...], size: int = 2) -> list[float]:
        """The expectation of the mean over members of sum_t A_t dlog pi / dlogit, over all groups (Williams 1992)."""
        total = [0.0, 0.0]
        for paths in itertools.product(PATHS, repeat=size):
            members = [self.play(member, path) for member, path in enumerate(paths)]
            credit = by_turn(rule, group(*members, greedy=self.play(size, greedy)))
            chance = math.prod(map(self.probability, paths))
            for path, values in zip(paths, credit, strict=True):
                for turn, (action, value) in enumerate(zip(path, values, strict=True)):
                    total[turn] += chance * value * (action - self.chances[turn]) / size
        return total


CHAINS = st.builds(Chain, st.tuples(CHANCES, CHANCES), st.tuples(VALUES, VALUES, VALUES), VALUES)


@given(chain=CHAINS)
def test_rloo_estimates_the_gradient_without_bias(chain: Chain) -> None:
    """Ahmadian et al. 2024, arXiv:2402.14740, section 2.3."""
    assert chain.estimate(algorithm("rloo"), PATHS[0]) == pytest.approx(chain.gradient, abs=1e-9)


@given(chain=CHAINS, greedy=st.sampled_from(PATHS), size=st.integers(1, 2))
def test_remax_estimates_the_gradient_without_bias_whatever_the_greedy_episode(
    chain: Chain, greedy: tuple[int, ...], size: int
) -> None:
    """Li et al. 2023, arXiv:2310.10505, algorithm 1."""
    assert chain.estimate(algorithm("remax"), greedy, size) == pytest.approx(chain.gradient, abs=1e-9)


@given(chain=CHAINS)
def test_dr_grpo_shrinks_the_gradient_by_the_members_own_share_of_the_mean(chain: Chain) -> None:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783).

    With a group mean that contains the member itself, the expectation is (G - 1) / G of the gradient.
    """
    exact = [value / 2 for value in chain.gradient]
    assert chain.estimate(algorithm("dr_grpo"), PATHS[0]) == pytest.approx(exact, abs=1e-9)


def expected_gradient(name: str, p: float, size: int) -> float:
    """The expectation of mean_i A_i dlog pi(a_i) / dlogit over all groups of a bandit that pays 1 for action 1.

    Action 1 has probability `p` and is what the greedy episode takes.
    """
    greedy = trajectory(size, 1.0, lengths=(1,))
    total = 0.0
    for actions in itertools.product((0, 1), repeat=size):
        members = [trajectory(member, action, lengths=(1,)) for member, action in enumerate(actions)]
        credit = by_turn(algorithm(name), group(*members, greedy=greedy))
        chance = math.prod(p if action else 1 - p for action in actions)
        total += chance * sum(values[0] * (action - p) for action, values in zip(actions, credit, strict=True)) / size
    return total


def by_wins(p: float, size: int, scale: Callable[[int], float]) -> float:
    """E[K (1 - K / G) / scale(K)] / G for K ~ Binomial(G, p).

    Advantages sum to 0 in a group, so that their products with a_i - p sum to K times the advantage of a win.
    """
    mixed = range(1, size)
    return sum(comb(size, k) * p**k * (1 - p) ** (size - k) * k * (1 - k / size) / scale(k) for k in mixed) / size


def sample_deviation(k: int, size: int) -> float:
    return sqrt(k * (size - k) / (size * (size - 1)))


def by_group(p: float, size: int) -> float:
    """DeepSeekMath, arXiv:2402.03300, section 4.1.2: the deviation of the group. The other losses differ later."""
    return by_wins(p, size, lambda k: sample_deviation(k, size) + 1e-4)


def by_batch(p: float, size: int) -> float:
    """REINFORCE++, arXiv:2501.03262: the deviation of the batch, which is one group here."""
    return by_wins(p, size, lambda k: sqrt(k * (size - k)) / size + 1e-8)


def by_episode_and_step(p: float, size: int) -> float:
    """GiGPO, arXiv:2505.10978, equation 8: all first turns start from one state, so that A_S = A_E."""
    return 2 * by_wins(p, size, lambda k: sample_deviation(k, size) + 1e-6)


BANDITS = {
    "grpo": by_group,
    "dapo": by_group,
    "gspo": by_group,
    "cispo": by_group,
    "reinforce++": by_batch,
    "reinforce++-baseline": by_batch,
    "gigpo": by_episode_and_step,
    "dr_grpo": lambda p, size: p * (1 - p) * (size - 1) / size,
    "rloo": lambda p, size: p * (1 - p),
    "remax": lambda p, size: p * (1 - p),
}


@pytest.mark.parametrize("name", BANDITS)
@given(p=CHANCES, size=st.integers(2, 4))
def test_on_a_bandit_the_expected_gradient_is_the_closed_form(name: str, p: float, size: int) -> None:
    assert expected_gradient(name, p, size) == pytest.approx(BANDITS[name](p, size), rel=1e-9)


def test_every_algorithm_has_a_closed_form() -> None:
    assert set(BANDITS) | {"ppo", "distillation"} == set(algorithms())

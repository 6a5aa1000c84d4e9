"""The held-out games are fair: the policy that is best in the training games finds their numbers too."""

from __future__ import annotations

import hashlib
from functools import cache

import pytest
from agentrl_guess import GuessEnv
from agentrl_guess.env import Game
from hypothesis import given, settings
from hypothesis import strategies as st


def games(env: GuessEnv, split: str) -> list[Game]:
    return [task.data for task in env.tasks(split)]


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(4, 300))
def test_a_quarter_of_each_range_is_held_out_between_trained_numbers(low: int, width: int) -> None:
    env = GuessEnv(low=low, high=low + width)
    train, test = set(games(env, "train")), games(env, "test")
    for end in env.ends():
        assert sum(game.high == end for game in test) == (end - low + 3) // 4
    for game in test:
        assert {Game(game.high, game.secret - 1), Game(game.high, game.secret + 1)} <= train
    assert {game.secret for game in train} == set(range(low, low + width + 1))


class Optimum:
    """The policy that earns most in the training games of one range, by dynamic programming over what it knows.

    A state is the interval that the answers leave, and the turn. Among guesses of equal value it chooses at random.
    """

    def __init__(self, env: GuessEnv, trained: frozenset[int], end: int) -> None:
        self.low, self.end, self.trained, self.turns = env.config.low, end, trained, env.config.turns
        self.value, self.passes = cache(self._value), cache(self._passes)

    def _value(self, low: int, high: int, turn: int) -> float:
        """Greatest sum of rewards over the trained numbers of an interval."""
        if low > high:
            return 0.0
        if turn == self.turns:
            return 0.5 * (1 - (high - low) / (self.end - self.low)) * len(self.trained & set(range(low, high + 1)))
        return max(self._earned(low, guess, high, turn) for guess in range(low, high + 1))

    def _earned(self, low: int, guess: int, high: int, turn: int) -> float:
        found = (1.5 - 0.5 * turn / self.turns) * (guess in self.trained)
        return found + self.value(low, guess - 1, turn + 1) + self.value(guess + 1, high, turn + 1)

    def _passes(self, secret: int, low: int, high: int, turn: int) -> float:
        """Probability of finding a number."""
        if turn == self.turns:
            return 0.0
        earned = {guess: self._earned(low, guess, high, turn) for guess in range(low, high + 1)}
        best = [guess for guess, value in earned.items() if value >= max(earned.values()) - 1e-9]
        return sum(self._after(secret, low, guess, high, turn + 1) for guess in best) / len(best)

    def _after(self, secret: int, low: int, guess: int, high: int, turn: int) -> float:
        if guess == secret:
            return 1.0
        return self.passes(secret, *((low, guess - 1) if secret < guess else (guess + 1, high)), turn)


def passed(env: GuessEnv, train: list[Game], played: list[Game]) -> float:
    """The share of `played` in which the policy that is optimal for `train` finds the number."""
    optima = {end: Optimum(env, frozenset(g.secret for g in train if g.high == end), end) for end in env.ends()}
    return sum(optima[g.high].passes(g.secret, env.config.low, g.high, 0) for g in played) / len(played)


def test_the_policy_that_is_optimal_for_the_training_games_passes_the_held_out_ones() -> None:
    env = GuessEnv()
    train, test = games(env, "train"), games(env, "test")
    assert passed(env, train, train) == passed(env, train, test) == 1.0


def test_it_would_fail_held_out_games_that_a_hash_alone_chooses() -> None:
    env = GuessEnv()
    both = {f"1-{game.high}/{game.secret}": game for split in ("train", "test") for game in games(env, split)}
    ranked = sorted(both, key=lambda name: hashlib.sha256(f"guess/{name}".encode()).digest())
    test, train = [[both[name] for name in names] for names in (ranked[:11], ranked[11:])]
    assert passed(env, train, train) == 1.0
    assert passed(env, train, test) == pytest.approx(0.828, abs=5e-4)

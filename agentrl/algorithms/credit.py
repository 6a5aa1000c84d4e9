"""Credit assignment on arrays: returns of each turn, group baselines, generalised advantage estimation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agentrl.algorithms.sample import ROUNDING, Array, Sample

Turn = tuple[str, int]
"""A turn by the agent that speaks in it and its index: only returns of the same turn are compared."""


def returns_to_go(rewards: Array, discount: float = 1.0) -> Array:
    """Return the discounted sum of this and all later rewards, for each token."""
    if discount == 1.0:
        return np.cumsum(rewards[::-1])[::-1].copy()
    out, total = np.zeros_like(rewards), 0.0
    for index in range(len(rewards) - 1, -1, -1):
        total = out[index] = rewards[index] + discount * total
    return out


def token_returns(sample: Sample, discount: float = 1.0) -> Array:
    """Return what the agent of each token still earns from that token on; `discount` is per token of the agent."""
    rewards, out = sample.rewards(), np.zeros(len(sample))
    for tokens in sample.streams().values():
        out[tokens] = returns_to_go(rewards[tokens], discount)
    return out


def gae(rewards: Array, values: Array, gammas: Array, lambdas: Array) -> Array:
    """Return the advantage of each of A steps by generalised advantage estimation (arXiv:1506.02438, equation 16).

    `values` [A + 1] ends with that of the state after the last step, 0 if the episode ended there. `gammas` and
    `lambdas` [A] are those of the step from each state to the next.
    """
    errors, out, advantage = rewards + gammas * values[1:] - values[:-1], np.zeros_like(rewards), 0.0
    for step in range(len(rewards) - 1, -1, -1):
        advantage = out[step] = errors[step] + gammas[step] * lambdas[step] * advantage
    return out


def returns_by_turn(samples: Sequence[Sample]) -> dict[Turn, Array]:
    """Return what every member [G] still earns from each turn on in which any member acts, without a discount.

    A member whose episode ended before that turn counts with its episode reward, the only reward left to it.
    """
    turns = sorted({(sample.agents[turn], turn) for sample in samples for turn in sample.agents})
    return {turn: np.array([remaining(sample, *turn) for sample in samples]) for turn in turns}


def remaining(sample: Sample, agent: str, turn: int, discount: float = 1.0) -> float:
    """Return what `agent` earns from `turn` on: the rewards of these turns and that of the episode.

    `discount` is per turn, and the episode's reward is one of the last turn. Rewards that add up to rounding are worth
    0. A KL penalty counts as a reward of the turn whose tokens pay it.
    """
    last = max(turn, *sample.agents)
    dated = [(last if reward.turn is None else reward.turn, reward) for reward in sample.earned]
    values = [
        discount ** (when - turn) * reward.value
        for when, reward in dated
        if reward.agent in ("", agent) and when >= turn
    ]
    total = math.fsum(values)
    if abs(total) <= ROUNDING * math.fsum(map(abs, values)):
        total = 0.0
    if sample.kl is None:
        return total
    own = sample.streams().get(agent, np.zeros(0, dtype=np.int64))
    own = own[sample.turns[own] >= turn]
    return total - float(np.sum(sample.kl[own] * discount ** (sample.turns[own] - turn)))


def spread(samples: Sequence[Sample], by_turn: dict[Turn, Array]) -> None:
    """Set the advantages of every sample: `by_turn[turn][member]` on all tokens of the turn."""
    for member, sample in enumerate(samples):
        of_turn = {turn: float(by_turn[agent, turn][member]) for turn, agent in sample.agents.items()}
        sample.advantages = sample.by_token(of_turn)


def centred(values: Array) -> Array:
    """value - mean; exactly 0 when the values are equal up to rounding."""
    return np.zeros_like(values) if is_equal(values) else values - values.mean()


def minus_mean_of_others(values: Array) -> Array:
    """Return each value minus the mean of the others; exactly 0 when all are equal up to rounding."""
    if is_equal(values):
        return np.zeros_like(values)
    size, total = len(values), values.sum()
    return np.asarray((size * values - total) / (size - 1))


def is_equal(values: Array) -> bool:
    """True when the values differ by no more than rounding."""
    return bool(np.ptp(values) <= ROUNDING * np.abs(values).max())


def difference(values: Array, baselines: Array) -> Array:
    """value - baseline for each element; exactly 0 where the two are equal up to rounding."""
    out, largest = values - baselines, np.maximum(np.abs(values), np.abs(baselines))
    return np.where(np.abs(out) <= ROUNDING * largest, 0.0, out)


def whiten(samples: Sequence[Sample], epsilon: float = 1e-8) -> None:
    """Normalise the advantages over all sampled tokens: (value - mean) / (std + epsilon), population std.

    Equal advantages become exactly 0.
    """
    values = np.concatenate([sample.advantages for sample in samples])
    if is_equal(values):
        mean, scale = values, np.inf
    else:
        mean, scale = values.mean(), values.std() + epsilon
    for sample in samples:
        sample.advantages = np.zeros(len(sample)) if np.isinf(scale) else (sample.advantages - mean) / scale

"""Credit assignment: rewards by turn and by episode, returns, and values by turn spread over action tokens."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from agentrl.types import Group, Trajectory

ROUNDING = 1e-9
"""Relative tolerance: values that differ by less than this share of the largest count as equal (0.1 + 0.2 and 0.3)."""


def turn_rewards(trajectory: Trajectory) -> dict[int, float]:
    """Return the weighted reward of each turn that has one."""
    rewards: dict[int, float] = {}
    for signal in trajectory.signals:
        if signal.scope == "turn" and signal.turn is not None and signal.valid and signal.value is not None:
            rewards[signal.turn] = rewards.get(signal.turn, 0.0) + signal.weight * signal.value
    return rewards


def episode_reward(trajectory: Trajectory) -> float:
    """Return the weighted reward of the episode as a whole, without the rewards of its turns."""
    return sum(
        signal.weight * signal.value
        for signal in trajectory.signals
        if signal.valid and signal.value is not None and (signal.scope != "turn" or signal.turn is None)
    )


def reward_to_go(rewards: dict[int, float], turn: int) -> float:
    """Return the sum of the rewards of `turn` and all later turns (discount 1)."""
    return sum(reward for rewarded, reward in rewards.items() if rewarded >= turn)


def returns_by_turn(group: Group) -> dict[int, list[float]]:
    """Return-to-go of every member, for each turn in which any member acts.

    A member whose episode ended before that turn counts with its episode reward, the only reward left to it.
    """
    acted = {segment.turn for t in group.trajectories for segment in t.segments if segment.is_action}
    rewards = [(episode_reward(t), turn_rewards(t)) for t in group.trajectories]
    return {turn: [outcome + reward_to_go(turns, turn) for outcome, turns in rewards] for turn in sorted(acted)}


def centred(values: Sequence[float]) -> list[float]:
    """value - mean; exactly 0 when the values are equal up to rounding."""
    if is_equal(values):
        return [0.0] * len(values)
    mean = statistics.fmean(values)
    return [value - mean for value in values]


def is_equal(values: Sequence[float]) -> bool:
    """True when the values differ by no more than rounding."""
    return max(values) - min(values) <= ROUNDING * max(map(abs, values))


def per_token(group: Group, by_turn: dict[int, list[float]]) -> list[list[list[float]]]:
    """[member][sequence][token]: `by_turn[turn][member]` on the action tokens of each turn, 0.0 on context tokens."""
    return [
        [
            [v for s in sequence.segments for v in [by_turn[s.turn][member] if s.is_action else 0.0] * len(s.ids)]
            for sequence in trajectory.sequences
        ]
        for member, trajectory in enumerate(group.trajectories)
    ]

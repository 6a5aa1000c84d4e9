"""Which reward belongs to which token: rewards by turn and episode, and turn values spread over action tokens."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from agentrl.types import Group, Trajectory

ROUNDING = 1e-9
"""Values that differ by less than this share of the largest are equal: 0.1 + 0.2 and 0.3 are one reward."""


def turn_rewards(trajectory: Trajectory) -> dict[int, float]:
    """The weighted reward of each turn that has one; it lands on the turn's last action token."""
    rewards: dict[int, float] = {}
    for signal in trajectory.signals:
        if signal.scope == "turn" and signal.turn is not None and signal.valid and signal.value is not None:
            rewards[signal.turn] = rewards.get(signal.turn, 0.0) + signal.weight * signal.value
    return rewards


def episode_reward(trajectory: Trajectory) -> float:
    """The weighted reward of the episode as a whole; it lands on the last action token."""
    return sum(
        signal.weight * signal.value
        for signal in trajectory.signals
        if signal.valid and signal.value is not None and (signal.scope != "turn" or signal.turn is None)
    )


def to_go(rewards: dict[int, float], turn: int) -> float:
    """The sum of turn rewards that an action token of `turn` still has before it (discount 1)."""
    return sum(reward for at, reward in rewards.items() if at >= turn)


def returns(group: Group) -> dict[int, list[float]]:
    """By turn in which anybody acts, the return-to-go of every member.

    A member whose episode has ended by that turn counts with what it has left: the reward of the episode, else 0.
    """
    acted = {segment.turn for t in group.trajectories for segment in t.segments if segment.is_action}
    rewards = [(episode_reward(t), turn_rewards(t)) for t in group.trajectories]
    return {turn: [outcome + to_go(turns, turn) for outcome, turns in rewards] for turn in sorted(acted)}


def centred(values: Sequence[float]) -> list[float]:
    """value - mean; exactly 0 where the values are equal up to rounding."""
    if is_equal(values):
        return [0.0] * len(values)
    mean = statistics.fmean(values)
    return [value - mean for value in values]


def is_equal(values: Sequence[float]) -> bool:
    """Whether the values differ by rounding at most."""
    return max(values) - min(values) <= ROUNDING * max(map(abs, values))


def spread(trajectory: Trajectory, value: Callable[[int], float]) -> list[list[float]]:
    """[sequence][token]: `value(turn)` on the action tokens of each turn, 0.0 on context."""
    return [
        [v for s in sequence.segments for v in [value(s.turn) if s.is_action else 0.0] * len(s.ids)]
        for sequence in trajectory.sequences
    ]

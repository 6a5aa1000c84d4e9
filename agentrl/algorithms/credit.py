"""Which reward belongs to which token: rewards by turn and episode, and turn values spread over action tokens."""

from __future__ import annotations

from collections.abc import Callable

from agentrl.types import Trajectory


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


def spread(trajectory: Trajectory, value: Callable[[int], float]) -> list[list[float]]:
    """[sequence][token]: `value(turn)` on the action tokens of each turn, 0.0 on context."""
    return [
        [v for s in sequence.segments for v in [value(s.turn) if s.is_action else 0.0] * len(s.ids)]
        for sequence in trajectory.sequences
    ]

"""REINFORCE++: no group, no critic; the whole batch is the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentrl.algorithms.base import Advantages, Algorithm
from agentrl.algorithms.credit import episode_reward, spread, to_go, turn_rewards
from agentrl.types import Group

EPSILON = 1e-8


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the global batch.

    A token's return is the episode reward plus the rewards of its own and the later turns (rewards lie on last action
    tokens, the discount is 1 as in the paper). A = (return - mean) / (std + 1e-8), mean and std (of the population)
    over all action tokens of the optimizer step. A batch whose returns are all equal gets exactly 0.

    Assumes that tasks are of like difficulty: one mean serves as the baseline of them all. Works with groups of one.
    Left out: the KL penalty inside the reward (`kl_weight` adds it to the loss instead) and the variant that first
    subtracts the group's mean.
    """

    name = "reinforce++"

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """See `Algorithm.advantages`."""
        returns = []
        for trajectory in (t for group in groups for t in group.trajectories):
            outcome, turns = episode_reward(trajectory), turn_rewards(trajectory)
            to = {s.turn: outcome + to_go(turns, s.turn) for s in trajectory.segments if s.is_action}
            returns.append((trajectory, to))
        mean, scale = moments([(to[s.turn], len(s.ids)) for t, to in returns for s in t.segments if s.is_action])
        rows = iter([spread(t, lambda turn, r=to: (r[turn] - mean) / scale) for t, to in returns])  # type: ignore[misc]
        return [[next(rows) for _ in group.trajectories] for group in groups]


def moments(weighted: list[tuple[float, int]]) -> tuple[float, float]:
    """Mean and standard deviation + epsilon of values that each count so many times; (value, 1) when all are equal."""
    total = sum(count for _, count in weighted)
    if len({value for value, _ in weighted}) < 2 or total == 0:
        return (weighted[0][0] if weighted else 0.0), 1.0
    mean = math.fsum(value * count for value, count in weighted) / total
    variance = math.fsum(count * (value - mean) ** 2 for value, count in weighted) / total
    return mean, math.sqrt(variance) + EPSILON

"""REINFORCE++: no group, no critic; the whole batch is the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from agentrl.algorithms.base import Advantages, Algorithm
from agentrl.algorithms.credit import episode_reward, is_equal, spread, to_go, turn_rewards
from agentrl.types import Group, Trajectory

EPSILON = 1e-8


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the global batch.

    A token's return is the episode reward plus the rewards of its own and the later turns (rewards lie on last action
    tokens, the discount is 1 as in the paper). A = (return - mean) / (std + 1e-8), mean and std (of the population)
    over all action tokens of the optimizer step. A batch whose returns are all equal gets exactly 0.

    Assumes that tasks are of like difficulty: one mean serves as the baseline of them all. Works with groups of one.
    Left out: the KL penalty inside the reward (`kl_coef` adds it to the loss instead) and the variant that first
    subtracts the group's mean.
    """

    name = "reinforce++"

    compares = "batch"

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """See `Algorithm.advantages`."""
        members = [(t, _to_go(t)) for group in groups for t in group.trajectories]
        normal = normaliser([(to[s.turn], len(s.ids)) for t, to in members for s in t.segments if s.is_action])
        rows = iter([spread(t, lambda turn, to=to: normal(to[turn])) for t, to in members])  # type: ignore[misc]
        return [[next(rows) for _ in group.trajectories] for group in groups]


def _to_go(trajectory: Trajectory) -> dict[int, float]:
    """The return from each turn in which the policy acted."""
    outcome, turns = episode_reward(trajectory), turn_rewards(trajectory)
    return {s.turn: outcome + to_go(turns, s.turn) for s in trajectory.segments if s.is_action}


def normaliser(weighted: list[tuple[float, int]]) -> Callable[[float], float]:
    """The map to (value - mean) / (std + epsilon) of values that each count so many times; to 0 when all are equal."""
    if not weighted or is_equal([value for value, _ in weighted]):
        return lambda _: 0.0
    total = sum(count for _, count in weighted)
    mean = math.fsum(value * count for value, count in weighted) / total
    scale = math.sqrt(math.fsum(count * (value - mean) ** 2 for value, count in weighted) / total) + EPSILON
    return lambda value: (value - mean) / scale

"""REINFORCE++: the baseline is the mean of the whole batch; there is neither a group baseline nor a critic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from agentrl.algorithms.base import Advantages, Algorithm
from agentrl.algorithms.credit import is_equal, per_token, returns_by_turn
from agentrl.types import Group

EPSILON = 1e-8


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the global batch.

    A token's return is the episode reward plus the rewards of its own and all later turns (a reward belongs to the last
    action token of its turn; the discount is 1, as in the paper). A = (return - mean) / (std + 1e-8), with mean and
    population std over all action tokens of the optimizer batch. A batch whose returns are all equal gets exactly 0.

    Assumes that all tasks are about equally difficult, because they share one baseline. Works with groups of one.
    Left out: the KL penalty inside the reward (`kl_coef` adds it to the loss instead) and the variant that first
    subtracts the group's mean.
    """

    name = "reinforce++"
    compares = "batch"

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """Returns of each turn, normalised over all action tokens of all groups."""
        returns = [(group, returns_by_turn(group)) for group in groups]
        normalise = normaliser(
            [
                (by_turn[segment.turn][member], len(segment.ids))
                for group, by_turn in returns
                for member, trajectory in enumerate(group.trajectories)
                for segment in trajectory.segments
                if segment.is_action
            ]
        )
        return [
            per_token(group, {turn: [normalise(value) for value in values] for turn, values in by_turn.items()})
            for group, by_turn in returns
        ]


def normaliser(weighted: list[tuple[float, int]]) -> Callable[[float], float]:
    """Return a function that maps a value to (value - mean) / (std + epsilon), or to 0 when all values are equal.

    `weighted` holds (value, count); mean and std weigh each value by its count.
    """
    if not weighted or is_equal([value for value, _ in weighted]):
        return lambda _: 0.0
    total = sum(count for _, count in weighted)
    mean = math.fsum(value * count for value, count in weighted) / total
    scale = math.sqrt(math.fsum(count * (value - mean) ** 2 for value, count in weighted) / total) + EPSILON
    return lambda value: (value - mean) / scale

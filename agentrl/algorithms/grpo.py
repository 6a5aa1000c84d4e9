"""GRPO: the baseline and the scale are the mean and the standard deviation of the group."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentrl.algorithms.base import Advantages, Algorithm, Needs
from agentrl.algorithms.credit import centred, per_token, returns_by_turn
from agentrl.types import Group

EPSILON = 1e-4


class GRPO(Algorithm):
    """Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300, section 4.1).

    R_i(t) is the return-to-go of member i at turn t: its turn rewards from t on plus the reward of the episode. An
    action token of turn t gets A_i(t) = (R_i(t) - mean_j R_j(t)) / (s + 1e-4), with one scale for the group,
    s^2 = sum over turns and members of (R_i(t) - mean_j R_j(t))^2 / (turns * (G - 1)). Without turn rewards this is the
    paper's outcome supervision, and s is the sample standard deviation of the rewards. With them, turn rewards keep
    their weight relative to the outcome. A turn at which all returns are equal gets exactly 0.

    Assumes that members of a group differ by chance only, so that their mean estimates the task's value.
    Left out: the paper's process supervision, which normalises each reward separately and has no outcome reward; the
    mean over each sample's length (the loss weighs all tokens of a step equally); the KL penalty, which `kl_coef` adds
    to the loss.
    """

    name = "grpo"
    needs = Needs(min_group_size=2)

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """Returns of each turn minus their group mean, divided by the scale of the group."""
        return [self._group(group) for group in groups]

    @staticmethod
    def _group(group: Group) -> list[list[list[float]]]:
        by_turn = {turn: centred(values) for turn, values in returns_by_turn(group).items()}
        squares = math.fsum(value * value for values in by_turn.values() for value in values)
        scale = math.sqrt(squares / max(1, len(by_turn) * (len(group.trajectories) - 1))) + EPSILON
        return per_token(group, {turn: [value / scale for value in values] for turn, values in by_turn.items()})

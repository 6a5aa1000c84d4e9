"""RLOO: the baseline of a member is the mean of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentrl.algorithms.base import Advantages, Algorithm, Needs
from agentrl.algorithms.credit import is_equal, per_token, returns_by_turn
from agentrl.types import Group


class RLOO(Algorithm):
    """REINFORCE Leave-One-Out (Ahmadian et al., arXiv:2402.14740, section 3.2; Kool et al. 2019).

    A_i = R_i - 1/(G-1) sum_{j != i} R_j, the same for every action token of member i. With turn rewards, R is the
    return from the token's turn on, for the member and for the others; this keeps the estimate unbiased, because the
    others' returns do not depend on what member i does. Equal returns get exactly 0.

    Assumes at least two members, drawn independently for one task.
    Left out: the KL penalty inside the reward (`kl_coef` adds it to the loss instead).
    """

    name = "rloo"
    needs = Needs(min_group_size=2)

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """Compute the return of each turn minus the mean return of the other members."""
        return [
            per_token(group, {turn: minus_mean_of_others(values) for turn, values in returns_by_turn(group).items()})
            for group in groups
        ]


def minus_mean_of_others(values: Sequence[float]) -> list[float]:
    """Return each value minus the mean of the others; exactly 0 when all are equal up to rounding."""
    if is_equal(values):
        return [0.0] * len(values)
    total, size = math.fsum(values), len(values)
    return [(size * value - total) / (size - 1) for value in values]

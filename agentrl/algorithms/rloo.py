"""RLOO: the baseline of a member is the mean of the others."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.credit import minus_mean_of_others, returns_by_turn, spread
from agentrl.algorithms.sample import Sample


class RLOO(Algorithm):
    """REINFORCE Leave-One-Out (Ahmadian et al., arXiv:2402.14740, section 2.3; Kool et al. 2019).

    A_i = R_i - 1/(G-1) sum_{j != i} R_j, the same for every action token of member i. With turn rewards, R is the
    return from the token's turn on, for the member and for the others; this keeps the estimate unbiased, because the
    others' returns do not depend on what member i does. Equal returns get exactly 0.

    Assumes at least two members, drawn independently for one task.
    """

    name = "rloo"
    needs = Needs(group_size=2)

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Compute the return of each turn minus the mean return of the other members."""
        for samples in groups:
            returns = returns_by_turn(samples)
            spread(samples, {turn: minus_mean_of_others(values) for turn, values in returns.items()})

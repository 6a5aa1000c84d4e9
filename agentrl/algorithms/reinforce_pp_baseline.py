"""REINFORCE++-baseline: the baseline is the mean of the group, the scale that of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.credit import centred, returns_by_turn, spread, whiten
from agentrl.algorithms.sample import Sample


class ReinforcePPBaseline(Algorithm):
    """REINFORCE++-baseline (Hu et al., arXiv:2501.03262, "REINFORCE++ w/ Baseline").

    The return of each turn minus its mean over the group, then normalised over all action tokens of the batch, as in
    REINFORCE++. The group mean removes the difficulty of the task; the scale is that of the batch, so that a group with
    nearly equal rewards is not blown up.

    Assumes that members of a group differ by chance only.
    """

    name = "reinforce++-baseline"
    needs = Needs(group_size=2)
    is_batch_relative = True

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Returns of each turn minus their group mean, normalised over all action tokens of all groups."""
        for samples in groups:
            spread(samples, {turn: centred(values) for turn, values in returns_by_turn(samples).items()})
        whiten([sample for samples in groups for sample in samples])

"""REINFORCE++: the baseline is the mean of the whole batch; there is neither a group baseline nor a critic."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.credit import returns_by_turn, spread, whiten
from agentrl.algorithms.sample import Sample


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the global batch.

    A token's return is the episode reward plus the rewards of its own and all later turns (a reward belongs to the last
    action token of its turn; the discount is 1, as in the paper). A = (return - mean) / (std + 1e-8), with mean and
    population std over all action tokens of the optimizer batch. A batch whose returns are all equal gets exactly 0.

    Assumes that all tasks are about equally difficult, because they share one baseline. Works with groups of one.
    """

    name = "reinforce++"
    is_batch_relative = True

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Returns of each turn, normalised over all action tokens of all groups."""
        for samples in groups:
            spread(samples, returns_by_turn(samples))
        whiten([sample for samples in groups for sample in samples])

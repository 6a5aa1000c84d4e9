"""REINFORCE++: returns are normalised over the whole batch; there is neither a group baseline nor a critic."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.credit import token_returns, whiten
from agentrl.algorithms.sample import Sample


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the global batch.

    A token's return is the sum of the rewards from that token on, minus the KL penalty of these tokens if there is one.
    A turn's reward belongs to the last token of its turn, that of the episode to the last token; the discount is 1, as
    in the paper. A = (return - mean) / (std + 1e-8), with mean and population std over all action tokens of the
    optimizer batch. A batch whose returns are all equal gets exactly 0.

    Assumes that all tasks are about equally difficult, because they share one baseline. Works with groups of one.
    """

    name = "reinforce++"
    is_batch_relative = True

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Returns of each token, normalised over all action tokens of all groups."""
        for samples in groups:
            for sample in samples:
                sample.advantages = token_returns(sample)
        whiten([sample for samples in groups for sample in samples])

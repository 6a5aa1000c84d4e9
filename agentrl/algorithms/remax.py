"""ReMax: the baseline is the return of the greedy answer to the same task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.credit import difference, remaining, token_returns
from agentrl.algorithms.sample import Array, Sample


class ReMax(Algorithm):
    """ReMax (Li et al., arXiv:2310.10505, algorithm 1).

    A = return - b. The return is the sum of the rewards from a token on, minus the KL penalty of these tokens if there
    is one; b is what one greedy episode of the same task earns from the same turn on, without a penalty. b does not
    depend on what is sampled, so that the estimate stays unbiased. A return equal to b gets exactly 0.

    Needs one more episode per group, decoded at temperature 0 and never trained. Works with groups of one.
    """

    name = "remax"
    needs = Needs(greedy=1)

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Return of each token minus that of the greedy episode from the same turn on."""
        for sample in (sample for samples in groups for sample in samples):
            sample.advantages = difference(token_returns(sample), _baseline(sample))


def _baseline(sample: Sample) -> Array:
    """Mean return of the greedy members for each token's agent and turn."""
    of_turn = {
        turn: float(np.mean([remaining(greedy, agent, turn) for greedy in sample.greedy]))
        for turn, agent in sample.agents.items()
    }
    return sample.by_token(of_turn)

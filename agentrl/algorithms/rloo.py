"""RLOO: the baseline of a member is the mean of the others."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Advantages, Algorithm, Needs
from agentrl.algorithms.credit import episode_reward, spread, to_go, turn_rewards
from agentrl.types import Group


class RLOO(Algorithm):
    """REINFORCE Leave-One-Out (Ahmadian et al., arXiv:2402.14740, section 3.2; Kool et al. 2019).

    A_i = R_i - 1/(G-1) sum_{j != i} R_j, the same for every action token of member i. With turn rewards R is the return
    from the token's turn on, for the member and for the others alike, which keeps the estimate unbiased: the
    others' returns do not depend on what member i does. A group whose rewards are all equal gets exactly 0.

    Assumes at least two members, drawn independently for one task.
    Left out: the KL penalty inside the reward (`kl_weight` adds it to the loss instead).
    """

    name = "rloo"
    needs = Needs(min_group=2)

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """See `Algorithm.advantages`."""
        return [self._group(group) for group in groups]

    @staticmethod
    def _group(group: Group) -> list[list[list[float]]]:
        outcomes = [episode_reward(t) for t in group.trajectories]
        turns = [turn_rewards(t) for t in group.trajectories]

        def credit(member: int, turn: int) -> float:
            returns = [o + to_go(r, turn) for o, r in zip(outcomes, turns, strict=True)]
            own, others = returns[member], returns[:member] + returns[member + 1 :]
            return sum(own - other for other in others) / len(others)

        return [
            spread(trajectory, lambda turn, m=member: credit(m, turn))  # type: ignore[misc]
            for member, trajectory in enumerate(group.trajectories)
        ]

"""GRPO: a group's own mean and spread are the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from agentrl.algorithms.base import Advantages, Algorithm, Needs
from agentrl.algorithms.credit import episode_reward, spread, to_go, turn_rewards
from agentrl.types import Group

EPSILON = 1e-4


class GRPO(Algorithm):
    """Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300, section 4.1).

    Outcome rewards R_i of the G members of a group: every action token of member i gets
    A_i = (R_i - mean(R)) / (std(R) + 1e-4), std the sample one (divided by G - 1). Turn rewards are the paper's process
    supervision: normalised over all turn rewards of the group, a token gets the sum of its own and the later turns'.
    A group whose rewards are all equal gets exactly 0.

    Assumes that members of a group differ by chance only, so that their mean estimates the task's value.
    Left out: the mean over each sample's length (the loss weighs every token of the step alike) and the KL penalty,
    which `kl_weight` adds to the loss.
    """

    name = "grpo"
    needs = Needs(min_group=2)

    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """See `Algorithm.advantages`."""
        return [self._group(group) for group in groups]

    @staticmethod
    def _group(group: Group) -> list[list[list[float]]]:
        outcomes = normalised([episode_reward(t) for t in group.trajectories])
        turns = [turn_rewards(t) for t in group.trajectories]
        flat = iter(normalised([reward for rewards in turns for reward in rewards.values()]))
        turns = [{turn: next(flat) for turn in rewards} for rewards in turns]
        return [
            spread(trajectory, lambda turn, o=outcome, r=rewards: o + to_go(r, turn))  # type: ignore[misc]
            for trajectory, outcome, rewards in zip(group.trajectories, outcomes, turns, strict=True)
        ]


def normalised(values: list[float]) -> list[float]:
    """(value - mean) / (sample standard deviation + epsilon); exactly 0 when all are equal."""
    if len(set(values)) < 2:
        return [0.0] * len(values)
    mean, scale = statistics.fmean(values), statistics.stdev(values) + EPSILON
    return [(value - mean) / scale for value in values]

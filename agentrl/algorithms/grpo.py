"""GRPO: the baseline and the scale are the mean and the standard deviation of the group."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.credit import centred, returns_by_turn, spread
from agentrl.algorithms.sample import Sample

EPSILON = 1e-4


class GRPO(Algorithm):
    """Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300, section 4.1).

    R_i(t) is the return-to-go of member i at turn t: its turn rewards from t on plus the reward of the episode. An
    action token of turn t gets A_i(t) = (R_i(t) - mean_j R_j(t)) / (s + 1e-4), with one scale for the group,
    s^2 = sum over turns and members of (R_i(t) - mean_j R_j(t))^2 / (turns * (G - 1)). Without turn rewards this is the
    paper's outcome supervision, and s is the sample standard deviation of the rewards. With them, turn rewards keep
    their weight relative to the outcome. A turn at which all returns are equal gets exactly 0. With `scale_rewards`
    false, s + 1e-4 is 1. The paper's mean over each sample's length is `normalization` sequence.

    Assumes that members of a group differ by chance only, so that their mean estimates the task's value.
    Left out: the paper's process supervision, which normalises each reward separately and has no outcome reward.
    """

    name = "grpo"
    needs = Needs(group_size=2)

    class Config(AlgorithmConfig):
        """Keys of GRPO."""

        scale_rewards: bool = Field(True, description="divide advantages by the standard deviation of the group")

    config: Config

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Returns of each turn minus their group mean, divided by the scale of the group."""
        for samples in groups:
            by_turn = {turn: centred(values) for turn, values in returns_by_turn(samples).items()}
            squares = math.fsum(value * value for values in by_turn.values() for value in values.tolist())
            scale = math.sqrt(squares / max(1, len(by_turn) * (len(samples) - 1))) + EPSILON
            divisor = scale if self.config.scale_rewards else 1.0
            spread(samples, {turn: np.asarray(values / divisor) for turn, values in by_turn.items()})

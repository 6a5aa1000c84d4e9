"""Dr. GRPO: GRPO without the two terms that bias it."""

from __future__ import annotations

from typing import Literal

from agentrl.algorithms.grpo import GRPO


class DrGRPO(GRPO):
    """GRPO Done Right (Liu et al., arXiv:2503.20783, section 3.2).

    A_i = R_i - mean_j R_j, without a division by the standard deviation, which gives tasks that are nearly solved or
    nearly hopeless more weight. The summed loss is divided by a constant for each sample, not by its length, which
    would favour long answers among the wrong ones.
    """

    name = "dr_grpo"

    class Config(GRPO.Config):
        """Keys of GRPO with the defaults of Dr. GRPO."""

        scale_rewards: bool = False
        normalization: Literal["token", "sequence", "constant"] = "constant"

    config: Config

"""GSPO: GRPO with the importance ratio of a whole sequence."""

from __future__ import annotations

from typing import Literal

from agentrl.algorithms.config import Loss
from agentrl.algorithms.grpo import GRPO


class GSPO(GRPO):
    """Group Sequence Policy Optimization (Zheng et al., arXiv:2507.18071, section 4.1).

    The advantage is GRPO's; the loss clips the geometric mean of a sequence's token ratios, and is a mean over
    sequences (equation 5). Such ratios vary little, therefore the clip range is narrow (section 5.1).
    """

    name = "gspo"

    class Config(GRPO.Config):
        """Keys of GRPO with the defaults of GSPO."""

        loss: Loss = "gspo"
        normalization: Literal["token", "sequence", "constant"] = "sequence"
        clip_low: float = 3e-4
        clip_high: float = 4e-4

    config: Config

"""CISPO: GRPO with clipped importance weights instead of clipped updates."""

from __future__ import annotations

from agentrl.algorithms.config import Loss
from agentrl.algorithms.grpo import GRPO


class CISPO(GRPO):
    """Clipped IS-weight Policy Optimization (MiniMax-M1, arXiv:2506.13585, section 3.1, equations 4 and 5).

    The advantage is GRPO's. The importance weight is clipped and detached, so that every token keeps a gradient. As in
    the paper, only the upper bound matters: with `clip_low` 1 the lower bound is 0. The paper does not state its upper
    bound; a weight of at most 5 is that of ScaleRL (arXiv:2510.13786).
    """

    name = "cispo"

    class Config(GRPO.Config):
        """Keys of GRPO with the defaults of CISPO."""

        loss: Loss = "cispo"
        clip_low: float = 1.0
        clip_high: float = 4.0

    config: Config

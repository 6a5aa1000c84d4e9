"""Policy losses of single tokens: pure functions of Terms. Suffix: A sampled tokens."""
# ruff: noqa: N806

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from agentrl.losses.terms import Terms


class LossConfig(Protocol):
    """The keys that losses read; `agentrl.algorithms.AlgorithmConfig` has them."""

    @property
    def clip_low(self) -> float:
        """Clip of the ratio below 1."""

    @property
    def clip_high(self) -> float:
        """Clip of the ratio above 1."""


def ppo_clip(terms: Terms, config: LossConfig) -> Tensor:
    """PPO's clipped loss: -min(r A, clip(r, 1 - low, 1 + high) A) with r = policy / old.

    Schulman et al., arXiv:1707.06347, equation 7. high > low is DAPO's clip-higher (arXiv:2503.14476, section 3.1),
    which leaves unlikely tokens room to grow.
    """
    ratio_A = terms.ratio
    unclipped_A = -terms.advantages * ratio_A
    clipped_A = -terms.advantages * ratio_A.clamp(1 - config.clip_low, 1 + config.clip_high)
    terms.meter("clip_fraction", clipped_A > unclipped_A)
    return torch.maximum(unclipped_A, clipped_A)

"""The loss of a critic: a pure function. Suffix: A sampled tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(values_A: Tensor, returns_A: Tensor, old_A: Tensor, clip: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the loss [A] of values and where clipping decides it [A].

    0.5 max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2): PPO2's, studied in Andrychowicz et al., arXiv:2006.05990,
    section 3.4 (choice C13). A `clip` of 0 is 0.5 (v - R)^2.
    """
    unclipped_A = (values_A - returns_A).square()
    if clip == 0:
        return 0.5 * unclipped_A, torch.zeros_like(values_A, dtype=torch.bool)
    clipped_A = (torch.clamp(values_A, old_A - clip, old_A + clip) - returns_A).square()
    return 0.5 * torch.maximum(unclipped_A, clipped_A), clipped_A > unclipped_A

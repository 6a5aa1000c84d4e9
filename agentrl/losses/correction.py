"""Corrections of the mismatch between the policy that sampled and the policy that learns. Suffix: A sampled tokens."""
# ruff: noqa: N806

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from agentrl.losses.terms import Terms


class CorrectionConfig(Protocol):
    """The keys that corrections read."""

    @property
    def correction(self) -> str:
        """Name of the correction."""

    @property
    def old_logprobs(self) -> str:
        """ "learner" or "sampler"."""

    @property
    def tis_cap(self) -> float:
        """Greatest weight."""

    @property
    def tis_floor(self) -> float:
        """Least ratio that a mask keeps."""


def correction(terms: Terms, config: CorrectionConfig) -> Tensor:
    """Return the factor [A] of each token's policy loss, without gradient, from the ratio old / sampler.

    With `old_logprobs` "sampler" the ratio of the loss corrects for the sampler by itself, and the factor is 1.

    `tis`: truncated importance sampling, min(cap, ratio): Yao et al. 2025, "Your Efficient RL Framework Secretly Brings
    You Off-Policy RL Training" (fengyao.notion.site/off-policy-rl).
    """
    ratio_A = torch.exp(terms.old.detach() - terms.sampler)
    if config.correction == "none" or config.old_logprobs == "sampler":
        ratio_A = torch.ones_like(ratio_A)
    weight_A = ratio_A.clamp(max=config.tis_cap)
    terms.meter("importance_mean", weight_A)
    terms.meter("importance_capped", ratio_A > config.tis_cap)
    return weight_A

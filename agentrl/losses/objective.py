"""The objective of a token: weighted policy loss, KL to the reference, entropy bonus. Suffix: A sampled tokens."""
# ruff: noqa: N806

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from agentrl.losses.correction import CorrectionConfig, correction
from agentrl.losses.kl import kl_k3, kl_penalty
from agentrl.losses.terms import Terms


class ObjectiveConfig(CorrectionConfig, Protocol):
    """The keys that the objective reads."""

    @property
    def kl_coef(self) -> float:
        """Coefficient of the KL."""

    @property
    def kl_in(self) -> str:
        """ "loss" or "reward"."""

    @property
    def entropy_coef(self) -> float:
        """Coefficient of the entropy bonus."""


def objective(terms: Terms, config: ObjectiveConfig, loss: Callable[[Terms], Tensor]) -> Tensor:
    """Return weights * (correction * loss + kl_coef * KL - entropy_coef * entropy) for each token [A].

    The KL term weighs each token by min(cap, policy / sampler), because its tokens come from the sampler.
    """
    own_A = terms.logprobs.detach()
    terms.meter("entropy", terms.entropy)
    # KL(sampler || learner), because the tokens come from the sampler.
    terms.meter("mismatch_kl", kl_k3(terms.sampler, own_A))
    loss_A = correction(terms, config) * loss(terms)
    if config.kl_coef > 0:
        reference_A = terms.column("reference")
        terms.meter("reference_kl", kl_k3(own_A, reference_A))
        if config.kl_in == "loss":
            current_A = torch.exp(own_A - terms.sampler).clamp(max=config.tis_cap)
            loss_A = loss_A + config.kl_coef * kl_penalty(terms.logprobs, reference_A, current_A)
    if config.entropy_coef > 0:
        loss_A = loss_A - config.entropy_coef * terms.entropy
    return terms.weights * loss_A

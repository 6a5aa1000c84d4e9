"""The objective of a token: weighted policy loss, KL to the reference, entropy bonus. Suffix: A sampled tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from agentrl.errors import AlgorithmError
from agentrl.losses.config import LossConfig
from agentrl.losses.correction import correction
from agentrl.losses.kl import kl, kl_penalty
from agentrl.losses.terms import Meter, Terms


def objective(terms: Terms, config: LossConfig, loss: Callable[[Terms], Tensor]) -> Tensor:
    """Return correction * loss + kl_coef * KL - entropy_coef * entropy for each token [A].

    The learner multiplies it by the weights. Coefficients that adapt are read from `terms.state`. Raises AlgorithmError
    for a loss that meters what is metered here, because both would enter one mean.
    """
    ours, its = replace(terms, meters=Meter()), replace(terms, meters=Meter())
    loss_A = correction(ours, config) * per_token(loss(its), its, loss)
    loss_A = _with_bonuses(ours, config, loss_A)
    if taken := ours.meters.names & its.meters.names:
        raise AlgorithmError(f"{loss.__qualname__} meters {min(taken)!r}, as agentrl does: choose another name")
    for one in (ours, its):
        terms.meters.add(one.meters)
    return loss_A


def _with_bonuses(terms: Terms, config: LossConfig, loss_A: Tensor) -> Tensor:
    """Meter the policy; return the loss with the KL to the reference and without the entropy bonus [A]."""
    own_A = terms.logprobs.detach()
    terms.meter("entropy", terms.entropy)
    # The tokens come from the sampler and, up to the mismatch, from the old policy: k3 estimates the KL from those.
    terms.meter("mismatch_kl", kl("k3", terms.sampler, own_A))
    terms.meter("policy_kl", kl("k3", terms.old, own_A))
    if config.kl_coef > 0:
        loss_A = loss_A + _kl_term(terms, config)
    if config.has_entropy_bonus:
        loss_A = loss_A - _entropy_bonus(terms, config)
    return loss_A


def per_token(loss_A: Tensor, terms: Terms, made_by: Callable[[Terms], Tensor]) -> Tensor:
    """Return what a `loss` or an `objective` made. Raises AlgorithmError unless it trains each token by itself."""
    name, wanted = made_by.__qualname__, tuple(terms.logprobs.shape)
    if not isinstance(loss_A, Tensor) or tuple(loss_A.shape) != wanted:
        got = f"the shape {tuple(loss_A.shape)}" if isinstance(loss_A, Tensor) else f"a {type(loss_A).__name__}"
        raise AlgorithmError(
            f"{name} returned {got}, not {wanted}: return one value for each sampled token, without a mean or a sum; "
            "algorithm.normalization divides the loss"
        )
    if terms.logprobs.requires_grad and not loss_A.requires_grad:
        raise AlgorithmError(
            f"{name} returned a loss without a gradient, from which nothing is learned: compute it from terms.logprobs "
            "without detach()"
        )
    return loss_A


def _kl_term(terms: Terms, config: LossConfig) -> Tensor:
    """Return kl_coef * KL(policy || reference) [A], or 0 if the rewards have it already.

    Each token is weighted by min(cap, policy / sampler), because the tokens come from the sampler.
    """
    own_A, reference_A = terms.logprobs.detach(), terms.column("reference")
    coef = _coefficient(terms, "kl_coef", config.kl_coef)
    terms.meter("reference_kl", kl(config.kl_estimator, own_A, reference_A))
    if config.kl_in == "reward":
        return torch.zeros_like(own_A)
    weight_A = torch.exp(own_A - terms.sampler).clamp(max=config.tis_cap)
    return coef * kl_penalty(config.kl_estimator, terms.logprobs, reference_A, weight_A)


def _entropy_bonus(terms: Terms, config: LossConfig) -> Tensor:
    """Return entropy_coef * entropy [A]; 0 where the entropy exceeds `entropy_clip`."""
    bonus_A = _coefficient(terms, "entropy_coef", config.entropy_coef) * terms.entropy
    if config.entropy_clip > 0:
        bonus_A = torch.where(terms.entropy > config.entropy_clip, 0.0, bonus_A)
    return bonus_A


def _coefficient(terms: Terms, name: str, start: float) -> float:
    """Return a coefficient: that of the state once it has adapted, which is metered, else its start."""
    if name not in terms.state:
        return start
    terms.meter(name, torch.full_like(terms.sampler, terms.state[name]))
    return terms.state[name]

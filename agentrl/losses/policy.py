"""The terms of a policy loss: pure functions on tensors. Suffixes: T tokens, V vocabulary."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor


def ppo_clip(
    logprobs_T: Tensor, old_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """PPO's clipped loss of each token, and where the clip held it (bool).

    -min(r A, clip(r, 1 - low, 1 + high) A), r = exp(logprob - old). Schulman et al., arXiv:1707.06347; high > low is
    DAPO's clip-higher (arXiv:2503.14476), which leaves room for unlikely tokens to grow.
    """
    ratio_T = torch.exp(logprobs_T - old_T)
    free_T = -advantages_T * ratio_T
    held_T = -advantages_T * ratio_T.clamp(1 - clip_low, 1 + clip_high)
    return torch.maximum(free_T, held_T), held_T > free_T


LOGRATIO_BOUND = 10.0
"""Nats: a token that two policies see further apart counts as this far, so that one token cannot own a step."""


def kl_k3(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """KL(policy of `logprobs` || other) of each token sampled from the former: exp(d) - 1 - d, d = other - logprobs.

    Schulman's k3 estimator (joschu.net/blog/kl-approx.html): unbiased, never negative. d is clamped to LOGRATIO_BOUND.
    A value only: differentiating it gives the gradient of KL(other || policy), see `kl_penalty`.
    """
    difference_T = (other_T - logprobs_T).clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    return torch.expm1(difference_T) - difference_T


def kl_penalty(logprobs_T: Tensor, reference_T: Tensor, weight_T: Tensor) -> Tensor:
    """KL(policy || reference) of each token: its value is k3, its gradient that of the divergence itself.

    The gradient of E_policy[log policy - log reference] is E_policy[(log policy - log reference) grad log policy], as
    k2's is (Schulman). `weight` = policy / sampler makes it one over the sampler's tokens. The difference is clamped to
    LOGRATIO_BOUND.
    """
    difference_T = (logprobs_T - reference_T).detach().clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    slope_T = difference_T * logprobs_T
    return weight_T * (kl_k3(logprobs_T, reference_T).detach() + slope_T - slope_T.detach())


def entropy(probs_TV: Tensor, logprobs_TV: Tensor) -> Tensor:
    """Entropy in nats of each token's distribution."""
    entropy_T: Tensor = torch.linalg.vecdot(probs_TV, logprobs_TV)
    return -entropy_T


def truncated_importance(logprobs_T: Tensor, sampler_T: Tensor, cap: float) -> Tensor:
    """min(cap, learner / sampler) of each token, without gradient.

    Corrects for a sampler whose numbers (kernels, precision, age) are not quite the learner's.
    """
    return torch.exp(logprobs_T.detach() - sampler_T).clamp(max=cap)


LOSSES = {"ppo_clip": ppo_clip}

"""KL divergence between two policies, estimated at sampled tokens. Suffix: T tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor

LOGRATIO_BOUND = 10.0
"""In nats. Larger log-ratios are clamped, so that a single token cannot dominate an optimizer step."""


def kl_k3(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """KL(policy of `logprobs` || other) at tokens sampled from that policy: exp(d) - 1 - d, d = other - logprobs.

    Schulman's k3 estimator (joschu.net/blog/kl-approx.html): unbiased and never negative. d is clamped to
    LOGRATIO_BOUND. Use it as a value only: its gradient is that of KL(other || policy), see `kl_penalty`.
    """
    difference_T = (other_T - logprobs_T).clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    return torch.expm1(difference_T) - difference_T


def kl_penalty(logprobs_T: Tensor, reference_T: Tensor, weight_T: Tensor) -> Tensor:
    """KL(policy || reference) of each token: the value is k3, the gradient is that of the divergence itself.

    The gradient of E_policy[log policy - log reference] is E_policy[(log policy - log reference) grad log policy],
    which is also the gradient of Schulman's k2. `weight` = policy / sampler corrects for tokens drawn from the
    sampler. The log-ratio is clamped to LOGRATIO_BOUND.
    """
    difference_T = (logprobs_T - reference_T).detach().clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    slope_T = difference_T * logprobs_T
    return weight_T * (kl_k3(logprobs_T, reference_T).detach() + slope_T - slope_T.detach())

"""KL divergence between two policies, estimated at sampled tokens. Suffix: T tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor

LOGRATIO_BOUND = 10.0
"""In nats. Larger log-ratios are clamped, so that a single token cannot dominate an optimizer step."""


def kl(estimator: str, logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """Estimate KL(policy of `logprobs` || other) at tokens sampled from that policy, with d = other - logprobs.

    Schulman's estimators (joschu.net/blog/kl-approx.html): k1 = -d is unbiased, k2 = d^2 / 2 biased but never negative,
    k3 = exp(d) - 1 - d both unbiased and never negative. d is clamped to LOGRATIO_BOUND. Use them as values only: the
    gradient of k1 has no expectation and that of k3 is the one of KL(other || policy), see `kl_penalty`.
    """
    difference_T = (other_T - logprobs_T).clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    match estimator:
        case "k1":
            return -difference_T
        case "k2":
            return difference_T.square() / 2
        case _:
            return torch.expm1(difference_T) - difference_T


def kl_penalty(estimator: str, logprobs_T: Tensor, reference_T: Tensor, weight_T: Tensor) -> Tensor:
    """KL(policy || reference) of each token: the value is the estimator's, the gradient that of the divergence itself.

    The gradient of E_policy[log policy - log reference] is E_policy[(log policy - log reference) grad log policy],
    which is also the gradient of Schulman's k2. `weight` = policy / sampler corrects for tokens drawn from the
    sampler. The log-ratio is clamped to LOGRATIO_BOUND.
    """
    difference_T = (logprobs_T - reference_T).detach().clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND)
    slope_T = difference_T * logprobs_T
    return weight_T * (kl(estimator, logprobs_T, reference_T).detach() + slope_T - slope_T.detach())

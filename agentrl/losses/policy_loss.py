"""Policy losses of single tokens: pure functions of Terms. Suffix: A sampled tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor

from agentrl.losses.config import LossConfig
from agentrl.losses.terms import Terms, bounded_exp


def ppo_clip(terms: Terms, config: LossConfig) -> Tensor:
    """PPO's clipped loss: -min(r A, clip(r, 1 - low, 1 + high) A) with r = policy / old.

    Schulman et al., arXiv:1707.06347, equation 7. high > low is DAPO's clip-higher (arXiv:2503.14476, section 3.1),
    which leaves unlikely tokens room to grow.
    """
    return _clipped(terms, config, terms.ratio)


def dual_clip(terms: Terms, config: LossConfig) -> Tensor:
    """PPO's clipped loss, bounded by -c A where A < 0: an unlikely bad token cannot dominate a step.

    Ye et al., arXiv:1912.09729, equation 5; c is `dual_clip`.
    """
    loss_A, bound_A = ppo_clip(terms, config), -config.dual_clip * terms.advantages
    is_bad_A = terms.advantages < 0
    terms.meter("dual_clip_fraction", is_bad_A & (loss_A > bound_A))
    return torch.where(is_bad_A, torch.minimum(loss_A, bound_A), loss_A)


def gspo(terms: Terms, config: LossConfig) -> Tensor:
    """Group Sequence Policy Optimization: PPO's clipped loss with the ratio of the whole sequence.

    Zheng et al., arXiv:2507.18071, equations 5 and 7: s = exp(mean over the sequence of log(policy / old)). This is the
    token variant of equations 13 and 14, s * policy / stop_gradient(policy), in which advantages may differ inside a
    sequence; where they do not, value and gradient are those of equation 5.
    """
    own_A = terms.logprobs
    mean_A = terms.by_sequence(own_A.detach() - terms.old)
    return _clipped(terms, config, bounded_exp(mean_A + own_A - own_A.detach()))


def cispo(terms: Terms, config: LossConfig) -> Tensor:
    """REINFORCE weighted by the clipped ratio, which carries no gradient, so that no token loses its gradient.

    MiniMax-M1, arXiv:2506.13585, equations 4 and 5. `clip_low` 1 leaves the ratio without a lower bound.
    """
    ratio_A = terms.ratio.detach()
    weight_A = ratio_A.clamp(1 - config.clip_low, 1 + config.clip_high)
    terms.meter("clip_fraction", weight_A != ratio_A)
    return -weight_A * terms.advantages * terms.logprobs


def policy_gradient(terms: Terms, config: LossConfig) -> Tensor:  # noqa: ARG001 (the signature of all losses)
    """REINFORCE (Williams 1992): -A log policy. It does not correct for updates since the batch was sampled."""
    return -terms.advantages * terms.logprobs


def _clipped(terms: Terms, config: LossConfig, ratio_A: Tensor) -> Tensor:
    unclipped_A = -terms.advantages * ratio_A
    clipped_A = -terms.advantages * ratio_A.clamp(1 - config.clip_low, 1 + config.clip_high)
    terms.meter("clip_fraction", clipped_A > unclipped_A)
    return torch.maximum(unclipped_A, clipped_A)

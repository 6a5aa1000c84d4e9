"""Policy loss, importance weights and entropy of single tokens. Suffixes: T tokens, V vocabulary."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor


def ppo_clip(
    logprobs_T: Tensor, old_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """PPO's clipped loss of each token, and a bool mask of the tokens at which clipping is active.

    -min(r A, clip(r, 1 - low, 1 + high) A) with r = exp(logprob - old): Schulman et al., arXiv:1707.06347, equation 7.
    high > low is DAPO's clip-higher (arXiv:2503.14476, section 3.1), which leaves unlikely tokens room to grow.
    """
    ratio_T = torch.exp(logprobs_T - old_T)
    unclipped_T = -advantages_T * ratio_T
    clipped_T = -advantages_T * ratio_T.clamp(1 - clip_low, 1 + clip_high)
    return torch.maximum(unclipped_T, clipped_T), clipped_T > unclipped_T


def truncated_importance(logprobs_T: Tensor, sampler_T: Tensor, cap: float) -> Tensor:
    """Truncated importance sampling: min(cap, learner / sampler) of each token, without gradient.

    Corrects for a sampler that differs slightly from the learner, by its kernels, precision or age: Yao et al. 2025,
    "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (fengyao.notion.site/off-policy-rl).
    """
    return torch.exp(logprobs_T.detach() - sampler_T).clamp(max=cap)


def entropy(probs_TV: Tensor, logprobs_TV: Tensor) -> Tensor:
    """Entropy of each token's distribution, in nats."""
    entropy_T: Tensor = torch.linalg.vecdot(probs_TV, logprobs_TV)
    return -entropy_T

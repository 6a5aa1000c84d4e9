from __future__ import annotations

import torch

from agentrl.algorithms import AlgorithmConfig
from agentrl.losses.correction import correction
from agentrl.losses.policy_loss import ppo_clip
from agentrl.losses.terms import Terms, means


def log(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def terms(logprobs: torch.Tensor, **columns: torch.Tensor) -> Terms:
    """Tokens of one sequence; what is left out is that of an on-policy token with advantage 1."""
    one, old = torch.ones_like(logprobs).detach(), logprobs.detach()
    given = {"sampler": old, "old": old, "advantages": one, "weights": one} | columns
    return Terms(logprobs=logprobs, entropy=one, sequence=torch.zeros(len(one), dtype=torch.long), **given)


def test_clip_higher_holds_a_good_token_at_its_own_bound_and_a_bad_one_at_the_lower():
    ratio = log(1.5, 1.25, 0.5, 1.5, 0.9)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0], dtype=torch.float64)
    seen = terms(ratio, old=torch.zeros(5, dtype=torch.float64), advantages=advantages)
    loss = ppo_clip(seen, AlgorithmConfig(clip_low=0.2, clip_high=0.28))
    torch.testing.assert_close(loss, torch.tensor([-1.28, -1.25, 0.8, 1.5, -1.8], dtype=torch.float64))
    assert means([seen.meter.sums()]) == {"clip_fraction": 0.4}


def test_at_ratio_one_the_gradient_is_the_policy_gradient():
    logprobs = log(0.2, 0.5).requires_grad_()
    advantages = torch.tensor([2.0, -3.0], dtype=torch.float64)
    ppo_clip(terms(logprobs, advantages=advantages), AlgorithmConfig()).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-2.0, 3.0]


def test_the_importance_weight_is_truncated_and_carries_no_gradient():
    learner = log(0.9, 0.1).requires_grad_()
    weight = correction(terms(learner, sampler=log(0.3, 0.2)), AlgorithmConfig(tis_cap=2.0))
    torch.testing.assert_close(weight, torch.tensor([2.0, 0.5], dtype=torch.float64))
    assert not weight.requires_grad

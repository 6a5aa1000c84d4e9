from __future__ import annotations

import math

import torch

from agentrl.losses.policy_loss import entropy, ppo_clip, truncated_importance


def log(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def test_clip_higher_holds_a_good_token_at_its_own_bound_and_a_bad_one_at_the_lower():
    ratio = log(1.5, 1.25, 0.5, 1.5, 0.9)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0], dtype=torch.float64)
    loss, clipped = ppo_clip(ratio, torch.zeros(5, dtype=torch.float64), advantages, 0.2, 0.28)
    torch.testing.assert_close(loss, torch.tensor([-1.28, -1.25, 0.8, 1.5, -1.8], dtype=torch.float64))
    assert clipped.tolist() == [True, False, True, False, False]


def test_at_ratio_one_the_gradient_is_the_policy_gradient():
    logprobs = log(0.2, 0.5).requires_grad_()
    loss, _ = ppo_clip(logprobs, logprobs.detach(), torch.tensor([2.0, -3.0], dtype=torch.float64), 0.2, 0.28)
    loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-2.0, 3.0]


def test_entropy_of_the_uniform_distribution_is_the_log_of_its_size():
    probs = torch.full((2, 8), 1 / 8)
    torch.testing.assert_close(entropy(probs, probs.log()), torch.full((2,), math.log(8)))


def test_the_importance_weight_is_truncated_and_carries_no_gradient():
    learner = log(0.9, 0.1).requires_grad_()
    weight = truncated_importance(learner, log(0.3, 0.2), 2.0)
    torch.testing.assert_close(weight, torch.tensor([2.0, 0.5], dtype=torch.float64))
    assert not weight.requires_grad

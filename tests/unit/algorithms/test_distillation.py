"""On-policy distillation follows the gradient of the reverse KL."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentrl.algorithms import Distillation
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import samples_of
from agentrl.losses.terms import Terms
from tests.unit.algorithms.cases import algorithm, group, trajectory


def test_an_advantage_is_the_log_ratio_of_teacher_and_student_at_its_own_token():
    """Lu and Thinking Machines Lab 2025 (thinkingmachines.ai/blog/on-policy-distillation, no numbered equations).

    The advantage is minus the reverse KL of each token, log teacher - log student, without a discount.
    """
    [[sample]] = samples_of([group(trajectory(0, 5.0, lengths=(2, 1)))])
    sample.columns["teacher"] = np.array([-0.5, -1.0, -4.0])
    assign(algorithm("distillation"), [[sample]])
    assert sample.advantages.tolist() == [0.5, 0.0, -3.0]


def test_the_expected_policy_gradient_is_minus_that_of_the_reverse_kl():
    """MiniLLM (Gu et al. 2023, arXiv:2306.08543, equation 1) and GKD (Agarwal et al. 2023, arXiv:2306.13649).

    Both minimise KL(p || teacher) over what the student p samples: the sum of p (log teacher - log p) grad log p over
    tokens is -grad KL(p || teacher). In float64, at a softmax over six logits, where the KL's gradient is
    p_j (log(p_j / q_j) - KL).
    """
    random = np.random.default_rng(0)
    policy, teacher = (np.exp(row) / np.exp(row).sum() for row in random.normal(size=(2, 6)))
    advantages = []
    for token in range(6):
        [[sample]] = samples_of([group(trajectory(0, 0.0, lengths=(1,)))])
        sample.sampler, sample.columns["teacher"] = np.log(policy[[token]]), np.log(teacher[[token]])
        assign(algorithm("distillation"), [[sample]])
        advantages.append(sample.advantages[0])
    scores = np.eye(6) - policy  # grad log p of each token, by logit
    divergence = np.sum(policy * np.log(policy / teacher))
    wanted = policy * (np.log(policy / teacher) - divergence)
    np.testing.assert_allclose((policy * advantages) @ scores, -wanted, atol=1e-12)


@pytest.mark.parametrize("old", ["learner", "sampler"])
def test_a_student_that_equals_its_teacher_does_not_move_however_old_its_tokens_are(old: str):
    policy = torch.log_softmax(torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64), 0)
    sampler = torch.log_softmax(torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64), 0)
    logprobs = policy.clone().requires_grad_()
    terms = Terms(
        logprobs=logprobs,
        entropy=torch.ones(3),
        sampler=sampler,
        old=policy if old == "learner" else sampler,
        advantages=policy - sampler,  # those of `credit`, where the teacher is the policy
        weights=torch.ones(3),
        sequence=torch.arange(3),
    )
    Distillation(Distillation.Config.model_validate({"teacher": "x", "old_logprobs": old})).objective(
        terms
    ).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.abs().max() < 1e-12

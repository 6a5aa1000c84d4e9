from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.losses.kl import LOGRATIO_BOUND, kl, kl_penalty


def test_k3_estimates_the_divergence_without_bias():
    """KL(p || q) = sum p log(p / q); Schulman 2020 (joschu.net/blog/kl-approx.html) shows that k3 is unbiased."""
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    exact = (p * (p / q).log()).sum()
    torch.testing.assert_close((p * kl("k3", p.log(), q.log())).sum(), exact)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative(one: float, other: float):
    assert float(kl("k3", torch.tensor(one, dtype=torch.float64), torch.tensor(other, dtype=torch.float64))) >= -1e-12


def exact_kl_gradient(logits: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The gradient of KL(p || q) = sum p log(p / q), the definition (Kullback and Leibler 1951), by autograd."""
    leaf = logits.clone().requires_grad_()
    policy = leaf.log_softmax(-1)
    (policy.exp() * (policy - reference)).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


@given(st.floats(1e-6, 1e-2))
def test_k3_of_policies_that_hardly_differ_keeps_its_digits_in_float32(difference: float):
    got = kl("k3", torch.zeros(1), torch.tensor([difference]))
    assert got.item() == pytest.approx(math.expm1(difference) - difference, rel=0.05, abs=1e-10)


@given(st.integers(0, 10_000), st.sampled_from(["k1", "k3"]))
def test_the_gradient_of_the_kl_penalty_is_that_of_the_divergence(seed: int, estimator: str):
    """In expectation over the tokens of a sampler that differs slightly from the policy, in float64."""
    random = torch.Generator().manual_seed(seed)
    logits, other, sampler = (torch.randn(7, generator=random, dtype=torch.float64) for _ in range(3))
    reference, sampler = other.log_softmax(-1), (logits + 0.3 * sampler).log_softmax(-1)
    leaf = logits.clone().requires_grad_()
    policy = leaf.log_softmax(-1)
    weight = (policy.detach() - sampler).exp()
    penalty = kl_penalty(estimator, policy, reference, weight)
    (sampler.exp() * penalty).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, exact_kl_gradient(logits, reference), atol=1e-12, rtol=1e-12)
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((sampler.exp() * penalty).sum(), exact, atol=1e-12, rtol=1e-12)


@given(st.floats(-9, 9))
def test_each_estimator_is_schulmans(difference: float):
    """Schulman 2020 (joschu.net/blog/kl-approx.html, without numbered equations).

    With log r = difference; the value of a penalty is the estimator's.
    """
    one, other = torch.zeros(1, dtype=torch.float64), torch.tensor([difference], dtype=torch.float64)
    expected = {"k1": -difference, "k2": difference**2 / 2, "k3": math.exp(difference) - 1 - difference}
    for name, value in expected.items():
        assert kl(name, one, other).item() == pytest.approx(value, rel=1e-12, abs=1e-15)
        assert kl_penalty(name, one, other, torch.ones(1)).item() == pytest.approx(value, rel=1e-12, abs=1e-15)


@given(st.integers(0, 10_000))
def test_in_the_loss_every_estimator_has_the_same_gradient(seed: int):
    random = torch.Generator().manual_seed(seed)
    own, other, weight = (torch.rand(5, generator=random, dtype=torch.float64) for _ in range(3))
    slopes = []
    for name in ("k1", "k2", "k3"):
        leaf = own.log().requires_grad_()
        kl_penalty(name, leaf, other.log(), weight).sum().backward()
        slopes.append(leaf.grad)
    assert all(torch.equal(slopes[0], slope) for slope in slopes)  # type: ignore[arg-type]


@given(st.floats(10, 1e4))
def test_a_token_far_from_the_reference_pulls_with_a_bounded_force(distance: float):
    for reference, force in ((-distance, LOGRATIO_BOUND), (distance, -LOGRATIO_BOUND)):
        logprob = torch.zeros(1, requires_grad=True)
        penalty = kl_penalty("k3", logprob, torch.tensor([reference]), torch.ones(1))
        penalty.sum().backward()
        assert logprob.grad is not None
        assert logprob.grad.tolist() == [force]
        assert math.isfinite(penalty.item())

"""Logprobs, entropies and gradients of the head against autograd on all logits in float64. Suffix: A actions."""
# ruff: noqa: N803, N806

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentrl.learner import heads
from agentrl.learner.heads import ActionLoss

ACTIONS, HIDDEN, VOCABULARY = 24, 32, 97
WEIGHTS = torch.linspace(-1.0, 2.0, ACTIONS)


def loss_of(logprobs_A: Tensor, entropy_A: Tensor, *, entropy: float = 0.7) -> Tensor:
    """A loss in which every token depends on both, and on the mean over all tokens."""
    weights_A = WEIGHTS.to(logprobs_A)
    return (weights_A * logprobs_A.exp()).sum() + logprobs_A.mean().square() - entropy * (weights_A * entropy_A).sum()


def inputs(dtype: torch.dtype, temperature: float, peak: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weights, targets and temperatures; the greater `peak`, the more certain the distributions."""
    random = torch.Generator().manual_seed(0)
    hidden = (peak * torch.randn(ACTIONS, HIDDEN, generator=random)).to(dtype)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=random).to(dtype)
    targets = torch.randint(VOCABULARY, (ACTIONS,), generator=random)
    return hidden, weight, targets, torch.full((ACTIONS,), temperature)


def exact(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its gradients by autograd, in float64."""
    hidden, weight = (leaf.double().requires_grad_() for leaf in (hidden, weight))
    logprobs = ((hidden @ weight.T) / temperature.double()[:, None]).log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    value = loss_of(logprobs.gather(1, targets[:, None]).squeeze(1), entropy)
    return value.detach(), *torch.autograd.grad(value, (hidden, weight))


def off(got: Tensor, wanted: Tensor) -> float:
    """The error relative to the norm."""
    return float((got.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("peak", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("kept", [1 << 28, 0])
@pytest.mark.parametrize("chunk", [1 << 24, 5 * VOCABULARY])
def test_loss_and_gradient_are_those_of_autograd_on_all_logits(
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
    peak: float,
    dtype: torch.dtype,
    bound: float,
    kept: int,
    chunk: int,
) -> None:
    """The entropy carries a gradient too, whether the distributions are kept or computed again."""
    monkeypatch.setattr(heads, "KEPT_LOGITS", kept)
    monkeypatch.setitem(heads.CHUNK_LOGITS, "cpu", chunk)
    given = inputs(dtype, temperature, peak)
    wanted, *slopes = exact(*given)
    hidden, weight = given[0].requires_grad_(), given[1].requires_grad_()
    value = ActionLoss.apply(hidden, weight, *given[2:], loss_of)  # type: ignore[no-untyped-call]
    value.backward()
    assert value.item() == pytest.approx(wanted.item(), rel=1e-4, abs=1e-4)
    for leaf, slope in zip((hidden, weight), slopes, strict=True):
        assert leaf.grad is not None
        assert off(leaf.grad, slope) < bound


def test_the_logits_of_a_chunk_are_as_many_as_the_device_of_the_actions_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, actions in (("cpu", 10), ("meta", 5)):
        monkeypatch.setitem(heads.CHUNK_LOGITS, device, actions * VOCABULARY)
        chunks = heads._chunks(torch.empty(ACTIONS, device=device), VOCABULARY)
        assert {chunk.stop - chunk.start for chunk in chunks} == {actions, 4}, device


@pytest.mark.parametrize("kept", [1 << 28, 0])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_the_gradient_of_the_entropy_alone_is_exact_where_the_policy_is_almost_certain(
    monkeypatch: pytest.MonkeyPatch, kept: int, dtype: torch.dtype, bound: float
) -> None:
    """That is where an entropy bonus has to work: the likeliest token has a probability of about 0.999."""
    monkeypatch.setattr(heads, "KEPT_LOGITS", kept)
    random = torch.Generator().manual_seed(1)
    weight = torch.eye(VOCABULARY, dtype=dtype).requires_grad_()
    logits = torch.randn(ACTIONS, VOCABULARY, generator=random)
    logits[:, 3] += 13.0
    hidden = logits.to(dtype).requires_grad_()
    ones = torch.ones(ACTIONS)
    value = ActionLoss.apply(hidden, weight, torch.full((ACTIONS,), 5), ones, lambda logprobs, entropy: entropy.sum())  # type: ignore[no-untyped-call]
    value.backward()
    leaf = hidden.detach().double().requires_grad_()
    logprobs = leaf.log_softmax(-1)
    (-(logprobs.exp() * logprobs).sum()).backward()
    assert hidden.grad is not None
    assert leaf.grad is not None
    assert off(hidden.grad, leaf.grad) < bound

"""From hidden states to logprobs and their loss, a chunk of logits at a time.

Suffixes: A actions, C a chunk of them, D hidden size, V vocabulary.
"""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from agentrl.losses.policy import entropy

# (actions of the chunk, logprobs_C, entropy_C) -> the chunk's loss, differentiable in the logprobs.
ChunkLoss = Callable[[slice, Tensor, Tensor], Tensor]
CHUNK_LOGITS = 1 << 24


def logprobs(hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor) -> Tensor:
    """Logprob of each target under softmax(hidden @ weight.T / temperature), in float32, without gradient."""
    out = torch.empty(targets_A.shape, dtype=torch.float32, device=hidden_AD.device)
    with torch.no_grad():
        logits = _logits(weight_VD)
        for place in _chunks(len(targets_A), len(weight_VD)):
            logprobs_CV = _distribution(logits(hidden_AD[place]), temperature_A[place])
            out[place] = _chosen(logprobs_CV, targets_A[place])
    return out


class ActionLoss(torch.autograd.Function):
    """The loss of all actions; its gradient is taken chunk by chunk in the forward pass, so logits are never kept.

    No chunk's logits are computed twice, and at most CHUNK_LOGITS of them exist at a time.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor, loss: ChunkLoss
    ) -> Tensor:
        """The summed loss, float32."""
        total = torch.zeros((), dtype=torch.float32, device=hidden_AD.device)
        grad_hidden_AD = torch.empty_like(hidden_AD)
        grad_weight_VD = torch.zeros(weight_VD.shape, dtype=torch.float32, device=weight_VD.device)
        logits = _logits(weight_VD)
        for place in _chunks(len(targets_A), len(weight_VD)):
            hidden_CD, targets_C = hidden_AD[place], targets_A[place]
            logprobs_CV = _distribution(logits(hidden_CD), temperature_A[place])
            chosen_C = _chosen(logprobs_CV, targets_C)
            probs_CV = logprobs_CV.exp()
            entropy_C = entropy(probs_CV, logprobs_CV)
            with torch.enable_grad():
                leaf_C = chosen_C.requires_grad_()
                value = loss(place, leaf_C, entropy_C)
                (grad_C,) = torch.autograd.grad(value, leaf_C)
            total += value.detach()
            scale_C = grad_C / temperature_A[place]
            grad_CV = probs_CV.mul_(-scale_C[:, None])
            grad_CV.scatter_add_(1, targets_C[:, None], scale_C[:, None])
            grad_CV = grad_CV.to(weight_VD.dtype)
            grad_hidden_AD[place] = grad_CV @ weight_VD
            grad_weight_VD += grad_CV.T @ hidden_CD
        ctx.save_for_backward(grad_hidden_AD, grad_weight_VD)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scales what the forward pass found."""
        grad_hidden_AD, grad_weight_VD = ctx.saved_tensors
        return grad_hidden_AD * grads[0], grad_weight_VD * grads[0], None, None, None


def _chunks(actions: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, CHUNK_LOGITS // vocabulary)
    return (slice(start, min(start + size, actions)) for start in range(0, actions, size))


def _logits(weight_VD: Tensor) -> Callable[[Tensor], Tensor]:
    """hidden_CD -> float32 logits: bfloat16 factors multiply as such, but no logit is rounded to bfloat16."""
    if weight_VD.dtype == torch.float32:
        return lambda hidden_CD: hidden_CD @ weight_VD.T
    if weight_VD.is_cuda:
        return lambda hidden_CD: torch.mm(hidden_CD, weight_VD.T, out_dtype=torch.float32)
    wide_VD = weight_VD.float()

    def logits(hidden_CD: Tensor) -> Tensor:
        with _bfloat16_products():
            return hidden_CD.float() @ wide_VD.T

    return logits


@contextmanager
def _bfloat16_products() -> Iterator[None]:
    """Float32 matrix products on a CPU read their factors as bfloat16, where the CPU has instructions for that.

    Of factors that are bfloat16 already nothing is lost, and the sums are float32.
    """
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before


def _distribution(logits_CV: Tensor, temperature_C: Tensor) -> Tensor:
    return torch.log_softmax(logits_CV.div_(temperature_C[:, None]), -1)


def _chosen(logprobs_CV: Tensor, targets_C: Tensor) -> Tensor:
    return logprobs_CV.gather(1, targets_C[:, None]).squeeze(1)

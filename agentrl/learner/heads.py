"""Logprobs and loss of actions from hidden states, with the logits of one chunk in memory at a time.

Suffixes: A actions, C a chunk of them, D hidden size, V vocabulary.
"""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from agentrl.losses.policy_loss import entropy

ChunkLoss = Callable[[slice, Tensor, Tensor], Tensor]
"""(chunk of the actions, logprobs_C, entropy_C) -> the summed loss of the chunk, differentiable in the logprobs."""
CHUNK_LOGITS = 1 << 24


def logprobs(hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor) -> Tensor:
    """Logprobs [A] of the targets under softmax(hidden @ weight.T / temperature), in float32, without gradient."""
    out = torch.empty(targets_A.shape, dtype=torch.float32, device=hidden_AD.device)
    with torch.no_grad():
        logits = _logits(weight_VD)
        for chunk in _chunks(len(targets_A), len(weight_VD)):
            logprobs_CV = _distribution(logits(hidden_AD[chunk]), temperature_A[chunk])
            out[chunk] = _chosen(logprobs_CV, targets_A[chunk])
    return out


class ActionLoss(torch.autograd.Function):
    """Loss of all actions, whose gradient is computed chunk by chunk during the forward pass.

    Each chunk's logits are computed once, and at most CHUNK_LOGITS of them are in memory at a time.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor, loss: ChunkLoss
    ) -> Tensor:
        """Return the summed loss, in float32."""
        total = torch.zeros((), dtype=torch.float32, device=hidden_AD.device)
        grad_hidden_AD = torch.empty_like(hidden_AD)
        grad_weight_VD = torch.zeros(weight_VD.shape, dtype=torch.float32, device=weight_VD.device)
        logits = _logits(weight_VD)
        for chunk in _chunks(len(targets_A), len(weight_VD)):
            hidden_CD, targets_C = hidden_AD[chunk], targets_A[chunk]
            logprobs_CV = _distribution(logits(hidden_CD), temperature_A[chunk])
            chosen_C = _chosen(logprobs_CV, targets_C)
            probs_CV = logprobs_CV.exp()
            entropy_C = entropy(probs_CV, logprobs_CV)
            with torch.enable_grad():
                leaf_C = chosen_C.requires_grad_()
                value = loss(chunk, leaf_C, entropy_C)
                (grad_C,) = torch.autograd.grad(value, leaf_C)
            total += value.detach()
            scale_C = grad_C / temperature_A[chunk]
            grad_CV = probs_CV.mul_(-scale_C[:, None])
            grad_CV.scatter_add_(1, targets_C[:, None], scale_C[:, None])
            grad_CV = grad_CV.to(weight_VD.dtype)
            grad_hidden_AD[chunk] = grad_CV @ weight_VD
            grad_weight_VD += grad_CV.T @ hidden_CD
        ctx.save_for_backward(grad_hidden_AD, grad_weight_VD)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that the forward pass computed."""
        grad_hidden_AD, grad_weight_VD = ctx.saved_tensors
        return grad_hidden_AD * grads[0], grad_weight_VD * grads[0], None, None, None


def _chunks(actions: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, CHUNK_LOGITS // vocabulary)
    return (slice(start, min(start + size, actions)) for start in range(0, actions, size))


def _logits(weight_VD: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function from hidden_CD to float32 logits: bfloat16 factors are multiplied, but no logit is rounded."""
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
    """Let float32 matrix products on a CPU use its bfloat16 instructions, if it has them.

    Factors that are bfloat16 already lose nothing, and sums are float32.
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

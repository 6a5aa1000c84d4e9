"""Logprobs and loss of actions from hidden states, with the logits of one chunk in memory at a time.

Suffixes: A actions, C a chunk of them, D hidden size, V vocabulary.
"""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from agentrl.learner.products import bfloat16_products

PackLoss = Callable[[Tensor, Tensor], Tensor]
"""(logprobs_A, entropy_A) of all actions of a micro-batch -> its summed loss, differentiable in both."""
CHUNK_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 27}
"""By device: on a CPU a chunk stays in the cache, and a GPU needs many rows to be busy (not yet measured on one)."""
KEPT_LOGITS = 1 << 28
"""Distributions of up to this many logits are kept from the first pass over them to the second."""


def logprobs(hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor) -> Tensor:
    """Logprobs [A] of the targets under softmax(hidden @ weight.T / temperature), in float32, without gradient.

    The weights are rounded to the type of the hidden states.
    """
    out = torch.empty(targets_A.shape, dtype=torch.float32, device=hidden_AD.device)
    with torch.no_grad():
        logits = _logits(weight_VD.to(hidden_AD.dtype))
        for chunk in _chunks(targets_A, len(weight_VD)):
            logprobs_CV = _distribution(logits(hidden_AD[chunk]), temperature_A[chunk])
            out[chunk] = _chosen(logprobs_CV, targets_A[chunk])
    return out


class ActionLoss(torch.autograd.Function):
    """Loss of all actions of a micro-batch, whose gradient is computed during the forward pass.

    The first pass over the logits computes logprobs and entropies, from which `loss` gets the whole micro-batch, so
    that it can compare tokens of a sequence. The second pass computes the gradient, chunk by chunk. At most
    CHUNK_LOGITS float32 logits are in memory at a time; if there are at most KEPT_LOGITS in all, the first pass keeps
    the probabilities in the type of the hidden states, otherwise the second computes them again.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor, loss: PackLoss
    ) -> Tensor:
        """Return the summed loss, in float32."""
        head = _Head(hidden_AD, weight_VD, targets_A, temperature_A)
        with torch.enable_grad():
            logprobs_A, entropy_A = head.logprobs_A.requires_grad_(), head.entropy_A.requires_grad_()
            value = loss(logprobs_A, entropy_A)
            grad_logprobs_A, grad_entropy_A = torch.autograd.grad(value, (logprobs_A, entropy_A), allow_unused=True)
        if grad_logprobs_A is None:
            grad_logprobs_A = torch.zeros_like(logprobs_A)
        needs_weight = ctx.needs_input_grad[1]  # a frozen head has no gradient
        ctx.save_for_backward(*head.gradients(grad_logprobs_A, grad_entropy_A, needs_weight=needs_weight))
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that the forward pass computed."""
        grad_hidden_AD, grad_weight_VD = ctx.saved_tensors
        grad_weight_VD = None if grad_weight_VD is None else grad_weight_VD * grads[0]
        return grad_hidden_AD * grads[0], grad_weight_VD, None, None, None


class _Head:
    """The distributions of all actions: logprobs and entropies [A] at once, gradients when the loss is known."""

    def __init__(self, hidden_AD: Tensor, weight_VD: Tensor, targets_A: Tensor, temperature_A: Tensor) -> None:
        # Rounded here and not before, so that the gradient of float32 weights stays float32.
        self._hidden_AD, self._weight_VD = hidden_AD, weight_VD.to(hidden_AD.dtype)
        self._targets_A, self._temperature_A = targets_A, temperature_A
        self._logits = _logits(self._weight_VD)
        self._kept: list[Tensor] = []
        self.logprobs_A = torch.empty(targets_A.shape, dtype=torch.float32, device=hidden_AD.device)
        self.entropy_A = torch.empty_like(self.logprobs_A)
        is_kept = len(targets_A) * len(weight_VD) <= KEPT_LOGITS
        for chunk in self._chunks():
            logprobs_CV = self._distribution(chunk)
            self.logprobs_A[chunk] = _chosen(logprobs_CV, targets_A[chunk])
            probs_CV = logprobs_CV.exp()
            self.entropy_A[chunk] = -logprobs_CV.mul_(probs_CV).sum(-1)
            if is_kept:
                self._kept.append(probs_CV.to(hidden_AD.dtype))

    def gradients(
        self, grad_logprobs_A: Tensor, grad_entropy_A: Tensor | None, *, needs_weight: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of hidden states [A, D] and, if it is needed, of the weight [V, D], in float32.

        With softmax p and entropy H: d logprob / d logit_v = 1[v = target] - p_v and
        d H / d logit_v = -p_v (log p_v + H), both divided by the temperature.
        """
        grad_hidden_AD = torch.zeros_like(self._hidden_AD)
        shape, device = self._weight_VD.shape, self._weight_VD.device
        grad_weight_VD = torch.zeros(shape, dtype=torch.float32, device=device) if needs_weight else None
        for number, chunk in enumerate(self._chunks()):
            targets_C1, temperature_C = self._targets_A[chunk, None], self._temperature_A[chunk]
            probs_CV = self._kept[number].float() if self._kept else self._distribution(chunk).exp_()
            # Rounded to bfloat16, 1 - p would lose its leading digits where p is near 1.
            probs_CV.scatter_(1, targets_C1, self.logprobs_A.detach()[chunk, None].exp())
            bonus_CV = None
            if grad_entropy_A is not None:
                _complete(probs_CV)
                bonus_CV = torch.xlogy(probs_CV, probs_CV) + probs_CV * self.entropy_A.detach()[chunk, None]
                bonus_CV *= (grad_entropy_A[chunk] / temperature_C)[:, None]
            scale_C1 = (grad_logprobs_A[chunk] / temperature_C)[:, None]
            grad_CV = probs_CV.mul_(-scale_C1).scatter_add_(1, targets_C1, scale_C1)
            if bonus_CV is not None:
                grad_CV -= bonus_CV
            grad_CV = grad_CV.to(self._weight_VD.dtype)
            grad_hidden_AD[chunk] = grad_CV @ self._weight_VD
            if grad_weight_VD is not None:
                grad_weight_VD += grad_CV.T @ self._hidden_AD[chunk]
        return grad_hidden_AD, grad_weight_VD

    def _chunks(self) -> Iterator[slice]:
        return _chunks(self._targets_A, len(self._weight_VD))

    def _distribution(self, chunk: slice) -> Tensor:
        return _distribution(self._logits(self._hidden_AD[chunk]), self._temperature_A[chunk])


def _complete(probs_CV: Tensor) -> None:
    """Set the largest probability of each row to 1 - the others, in place.

    Rounded to bfloat16 it may be 1, where the logarithm that the gradient of the entropy needs is 0.
    """
    top_C1 = probs_CV.argmax(-1, keepdim=True)
    others_C1 = probs_CV.sum(-1, keepdim=True) - probs_CV.gather(1, top_C1)
    probs_CV.scatter_(1, top_C1, 1 - others_C1)


def _chunks(targets_A: Tensor, vocabulary: int) -> Iterator[slice]:
    actions, size = len(targets_A), max(1, CHUNK_LOGITS[targets_A.device.type] // vocabulary)
    return (slice(start, min(start + size, actions)) for start in range(0, actions, size))


def _logits(weight_VD: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function from hidden_CD to float32 logits: bfloat16 factors are multiplied, but no logit is rounded."""
    if weight_VD.dtype == torch.float32:
        return lambda hidden_CD: hidden_CD @ weight_VD.T
    if weight_VD.is_cuda:
        return lambda hidden_CD: torch.mm(hidden_CD, weight_VD.T, out_dtype=torch.float32)
    wide_VD = weight_VD.float()

    def logits(hidden_CD: Tensor) -> Tensor:
        with bfloat16_products():
            return hidden_CD.float() @ wide_VD.T

    return logits


def _distribution(logits_CV: Tensor, temperature_C: Tensor) -> Tensor:
    return torch.log_softmax(logits_CV.div_(temperature_C[:, None]), -1)


def _chosen(logprobs_CV: Tensor, targets_C: Tensor) -> Tensor:
    return logprobs_CV.gather(1, targets_C[:, None]).squeeze(1)

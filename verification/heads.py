"""Logits and their gradient on GPUs, in float32 from bfloat16 factors; scores of a reward model."""

from __future__ import annotations

import torch
from torch import Tensor

from agentrl.learner.heads import ActionLoss, logprobs
from verification.attention import far
from verification.check import BoundError, Setting, within
from verification.memory import MIB, Peak

ACTIONS, HIDDEN, VOCABULARY = 600, 576, 49_152
LOGPROB, GRADIENT = 1e-3, 1e-2
"""Bounds: of a logprob in nats, and of a gradient as ||difference|| / ||exact||."""


def logits(setting: Setting, vocabulary: int = VOCABULARY) -> str:
    """Compare logprobs and gradients with float64, in which nothing is rounded."""
    device, generator = torch.device(setting.device), torch.Generator().manual_seed(0)
    hidden = torch.randn(ACTIONS, HIDDEN, generator=generator).bfloat16()
    weight = (0.3 * torch.randn(vocabulary, HIDDEN, generator=generator)).bfloat16()
    targets, weights = (
        torch.randint(vocabulary, (ACTIONS,), generator=generator),
        torch.randn(ACTIONS, generator=generator),
    )
    exact = _exact(hidden, weight, targets, weights)
    found, memory = _found(*(one.to(device) for one in (hidden, weight, targets, weights)))
    error = within("the error of a logprob", float((found[0].cpu().double() - exact[0]).abs().max()), LOGPROB)
    gradient = within("the error of a gradient", far(found[1:], exact[1:]), GRADIENT)
    rounded = _chosen((hidden.double() @ weight.double().T).bfloat16().double(), targets)
    coarse = float((rounded - exact[0]).abs().max())
    if not error < coarse:
        raise BoundError(f"logprobs are off by {error:.2g}, as if logits were rounded to bfloat16 ({coarse:.2g})")
    return (
        f"vocabulary of {vocabulary:,}: logprobs within {error:.1e} of float64 (bound {LOGPROB:g}; {coarse:.1e} if "
        f"logits were rounded to bfloat16), gradients within {gradient:.1e} (bound {GRADIENT:g}); peak "
        f"{memory / MIB:.0f} MiB"
    )


def _chosen(logits_AV: Tensor, targets_A: Tensor) -> Tensor:  # noqa: N803
    return torch.log_softmax(logits_AV, -1).gather(1, targets_A[:, None]).squeeze(1)


def _exact(hidden: Tensor, weight: Tensor, targets: Tensor, weights: Tensor) -> list[Tensor]:
    """Return logprobs, and the gradients of hidden states and weight, in float64."""
    leaves = [one.double().requires_grad_() for one in (hidden, weight)]
    chosen = _chosen(leaves[0] @ leaves[1].T, targets)
    return [chosen.detach(), *torch.autograd.grad((chosen * weights).sum(), leaves)]


def _found(hidden: Tensor, weight: Tensor, targets: Tensor, weights: Tensor) -> tuple[list[Tensor], int]:
    """Return the same by the learner's head, and the peak of memory."""
    temperature = torch.ones(len(targets), device=hidden.device)
    leaves = [hidden.detach().requires_grad_(), weight.float().requires_grad_()]

    def loss(logprobs_A: Tensor, _: Tensor) -> Tensor:  # noqa: N803
        return (logprobs_A * weights).sum()

    with Peak(hidden.device.type) as peak:
        value: Tensor = ActionLoss.apply(*leaves, targets, temperature, loss)  # type: ignore[no-untyped-call]
        gradients = torch.autograd.grad(value, leaves)
    return [logprobs(hidden, weight, targets, temperature), *gradients], peak.nbytes

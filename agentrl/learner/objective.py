"""The loss of one optimizer step, and what is measured while it is computed. Suffixes: A actions, C a chunk of them."""
# ruff: noqa: N803, N806, N815

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentrl.config.schema import AlgorithmSection
from agentrl.learner.micro_batch import MicroBatch
from agentrl.losses import LOSSES
from agentrl.losses.kl import kl_k3, kl_penalty
from agentrl.losses.policy import truncated_importance

MEASURED = ("tokens", "entropy", "mismatch_kl", "reference_kl", "clipped", "importance", "capped")


@dataclass
class TokenSums:
    """Sums over tokens, in the order of MEASURED; they add up over chunks, passes, optimizer steps and ranks."""

    device: torch.device
    sums: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.sums = torch.zeros(len(MEASURED), dtype=torch.float64, device=self.device)

    def __iadd__(self, more: TokenSums) -> TokenSums:
        self.sums += more.sums
        return self

    @property
    def tokens(self) -> int:
        """The tokens that went through the model and counted."""
        return int(self.sums[0])

    def mean(self, name: str) -> float:
        """The mean over the tokens that went through the model; 0.0 when none did."""
        tokens = float(self.sums[0])
        return float(self.sums[MEASURED.index(name)]) / tokens if tokens else 0.0


@dataclass(frozen=True)
class Objective:
    """sum over actions of [w * clipped policy loss + kl_coef * KL to the reference] * scale, for one pack.

    `scale` is ranks / tokens: DeepSpeed averages gradients over ranks, so every token of the optimizer step weighs
    1 / tokens wherever it is. Without `old_A` the old logprobs are this very pass's, detached (ratio 1). w is the
    truncated weight min(C, old / sampler); under `old_logprobs = "sampler"` the sampler's are old and w is 1. The KL
    weighs min(C, present / sampler) in either case: its tokens are the sampler's.
    """

    section: AlgorithmSection
    name: str
    pack: MicroBatch
    scale: float
    measured: TokenSums
    old_A: Tensor | None = None
    reference_A: Tensor | None = None

    def __call__(self, place: slice, logprobs_C: Tensor, entropy_C: Tensor) -> Tensor:
        """The chunk's loss (see `head.ChunkLoss`)."""
        section, sampler_C = self.section, self.pack.sampler_A[place]
        own_C = logprobs_C.detach()
        old_C = own_C if self.old_A is None else self.old_A[place]
        ratio_C = truncated_importance(old_C, sampler_C, float("inf"))
        weight_C = ratio_C.clamp(max=section.tis_cap)
        if section.old_logprobs == "sampler":
            old_C, weight_C, ratio_C = sampler_C, torch.ones_like(sampler_C), torch.ones_like(sampler_C)
        policy_C, clipped_C = LOSSES[self.name](
            logprobs_C, old_C, self.pack.advantages_A[place], section.clip_low, section.clip_high
        )
        loss_C = weight_C * policy_C
        kl_C = torch.zeros_like(own_C)
        if self.reference_A is not None:
            reference_C = self.reference_A[place]
            present_C = truncated_importance(logprobs_C, sampler_C, section.tis_cap)
            loss_C = loss_C + section.kl_coef * kl_penalty(logprobs_C, reference_C, present_C)
            kl_C = kl_k3(own_C, reference_C)
        if self.pack.weight:
            # KL(sampler || learner) by k3: the tokens are the sampler's.
            values = (entropy_C, kl_k3(sampler_C, own_C), kl_C, clipped_C, weight_C, ratio_C > section.tis_cap)
            sums = [value.double().sum() for value in (torch.ones_like(own_C), *values)]
            self.measured.sums += torch.stack(sums)
        return loss_C.sum() * (self.scale * self.pack.weight)

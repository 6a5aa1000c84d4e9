"""Loss of an optimizer step, and statistics of its tokens. Suffixes: A actions, C a chunk of them."""
# ruff: noqa: N803, N806, N815

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.config.schema import AlgorithmSection
from agentrl.learner.micro_batch import MicroBatch
from agentrl.losses import LOSSES
from agentrl.losses.kl import kl_k3, kl_penalty
from agentrl.losses.policy_loss import truncated_importance

STATISTICS = ("tokens", "entropy", "mismatch_kl", "reference_kl", "clip_fraction", "tis_mean", "tis_capped")


class TokenSums:
    """Sums over tokens, in the order of STATISTICS, over chunks, micro-batches, optimizer steps and ranks."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(STATISTICS), dtype=torch.float64, device=device)

    def __iadd__(self, other: TokenSums) -> TokenSums:
        self.sums += other.sums
        return self

    @property
    def tokens(self) -> int:
        """Number of tokens that went through the model, without those of dummy micro-batches."""
        return int(self.sums[0])

    def means(self) -> dict[str, float]:
        """Mean of each statistic over those tokens; 0.0 if there are none."""
        tokens, *sums = self.sums.tolist()
        return {name: value / tokens if tokens else 0.0 for name, value in zip(STATISTICS[1:], sums, strict=True)}


@dataclass(frozen=True)
class Objective:
    """Sum over the actions of a micro-batch of [w * policy loss + kl_coef * KL to the reference] * scale.

    `scale` is ranks / tokens: DeepSpeed averages gradients over ranks, so every token of the optimizer step weighs
    1 / tokens on any rank. `old_A` is None if the old logprobs are those of this forward pass, detached (ratio 1).
    w is the truncated importance weight min(cap, old / sampler). With `old_logprobs = "sampler"`, the old logprobs are
    the sampler's and w is 1. The KL term weighs each token by min(cap, current / sampler) in both cases, because its
    tokens come from the sampler. The statistics of the tokens are added to `sums`.
    """

    section: AlgorithmSection
    loss: str
    micro_batch: MicroBatch
    scale: float
    sums: TokenSums
    old_A: Tensor | None = None
    reference_A: Tensor | None = None

    def __call__(self, chunk: slice, logprobs_C: Tensor, entropy_C: Tensor) -> Tensor:
        """Return the summed loss of a chunk of the actions; a `heads.ChunkLoss`."""
        section, sampler_C = self.section, self.micro_batch.sampler_A[chunk]
        own_C = logprobs_C.detach()
        old_C = own_C if self.old_A is None else self.old_A[chunk]
        ratio_C = truncated_importance(old_C, sampler_C, float("inf"))
        weight_C = ratio_C.clamp(max=section.tis_cap)
        if section.old_logprobs == "sampler":
            old_C, weight_C, ratio_C = sampler_C, torch.ones_like(sampler_C), torch.ones_like(sampler_C)
        policy_C, clipped_C = LOSSES[self.loss](
            logprobs_C, old_C, self.micro_batch.advantages_A[chunk], section.clip_low, section.clip_high
        )
        loss_C = weight_C * policy_C
        kl_C = torch.zeros_like(own_C)
        if self.reference_A is not None:
            reference_C = self.reference_A[chunk]
            current_C = truncated_importance(logprobs_C, sampler_C, section.tis_cap)
            loss_C = loss_C + section.kl_coef * kl_penalty(logprobs_C, reference_C, current_C)
            kl_C = kl_k3(own_C, reference_C)
        if self.micro_batch.weight:
            # mismatch_kl is KL(sampler || learner), because the tokens come from the sampler.
            values = (entropy_C, kl_k3(sampler_C, own_C), kl_C, clipped_C, weight_C, ratio_C > section.tis_cap)
            self.sums.sums += torch.stack([value.double().sum() for value in (torch.ones_like(own_C), *values)])
        return loss_C.sum() * (self.scale * self.micro_batch.weight)

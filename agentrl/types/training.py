"""What is trained, what was dropped instead, and what the learner reports of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentrl.types.requests import SampleId
from agentrl.types.trajectory import Group

DropReason = Literal["filtered", "stale", "invalid", "unanswered", "cancelled", "lost"]
"""Why an attempt ended untrained."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one optimizer batch is made of, and what was dropped while it was collected.

    `restored_tokens` counts those of its sampled tokens, dropped ones included, that an earlier incarnation sampled.
    """

    groups: tuple[Group, ...]
    dropped: tuple[tuple[DropReason, str, int], ...]
    ages: tuple[int, ...]
    restored_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One sequence to train on; all lists have its length T.

    `mask` is 1 on sampled tokens, `sampler_logprobs` holds the logprob each was sampled with (at `temperature`) and
    `advantages` what it is credited with; both are ignored where the mask is 0.
    """

    sample: SampleId
    ids: list[int]
    mask: list[int]
    sampler_logprobs: list[float]
    advantages: list[float]
    temperature: float = 1.0

    @property
    def has_signal(self) -> bool:
        """True when a sampled token has an advantage; without one, and without a KL term, the gradient is exactly 0."""
        return any(advantage for advantage, is_action in zip(self.advantages, self.mask, strict=True) if is_action)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one batch did, the same on every rank except `samples`, `tokens` and the timings.

    `samples` and `tokens` (sampled ones) are this rank's share; over all ranks each sample appears once. The means are
    over the `learned_tokens` (of all ranks), those of the optimizer steps that were taken: the ones with an advantage,
    or all where there is a reference. Where none was taken they mean nothing (`has_learned`, `MEANS`). Of the other
    optimizer steps, `skipped_steps` had nothing to learn from and `nonfinite_steps` a gradient that was not finite.
    """

    loss: float
    grad_norm: float
    lr: float
    entropy: float
    mismatch_kl: float
    reference_kl: float
    clip_fraction: float
    tis_mean: float
    tis_capped: float
    tokens: int
    optimizer_steps: int
    samples: tuple[SampleId, ...]
    seconds: float
    skipped_steps: int = 0
    nonfinite_steps: int = 0
    learned_tokens: int = 0

    @property
    def has_learned(self) -> bool:
        """Whether the weights were updated."""
        return self.optimizer_steps > 0


MEANS = (
    "loss", "grad_norm", "entropy", "mismatch_kl", "reference_kl",
    "clip_fraction", "tis_mean", "tis_capped",
)  # fmt: skip
"""The fields of a `StepReport` that are only known where something was learned."""

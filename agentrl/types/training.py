"""Batches on their way to the learner, and its report of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentrl.types.requests import SampleId
from agentrl.types.trajectory import Group

DropReason = Literal["filtered", "stale", "invalid", "unanswered", "cancelled", "lost"]
"""Reasons why an attempt is not trained."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups of one optimizer batch, and the samples that were dropped while it was collected.

    `dropped` holds (reason, explanation, sampled tokens) of each dropped sample, `ages` the age of each sample that is
    trained. `restored_tokens` counts the sampled tokens, including dropped ones, that come from an earlier incarnation.
    """

    groups: tuple[Group, ...]
    dropped: tuple[tuple[DropReason, str, int], ...]
    ages: tuple[int, ...]
    restored_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One sequence to train on; all lists have length T.

    `mask` is 1 on sampled tokens. `sampler_logprobs` holds the logprob with which each of them was sampled (at
    `temperature`), `advantages` its advantage; both are ignored where the mask is 0.
    """

    sample: SampleId
    ids: list[int]
    mask: list[int]
    sampler_logprobs: list[float]
    advantages: list[float]
    temperature: float = 1.0

    @property
    def has_signal(self) -> bool:
        """True when a sampled token has an advantage. Otherwise, and without a KL term, the gradient is exactly 0."""
        return any(advantage for advantage, is_action in zip(self.advantages, self.mask, strict=True) if is_action)


@dataclass(frozen=True, slots=True)
class StepReport:
    """Report of one batch; the same on every rank except for `samples`, `tokens` and `seconds`.

    `samples` and `tokens` (sampled ones) are this rank's share; over all ranks each sample appears once.
    `optimizer_steps` counts the steps that were taken, `skipped_steps` those without a signal, `nonfinite_steps` those
    whose gradient was not finite. The fields in `MEANS` are means over `learned_tokens`: the tokens of all ranks that
    went through the model in steps that were taken. They mean nothing unless `has_learned`.
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
"""Fields of a `StepReport` that have a meaning only when `has_learned`."""

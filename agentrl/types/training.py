"""Batches on their way to the learner, and its report of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentrl.types.requests import SampleId
from agentrl.types.trajectory import Group

DropReason = Literal["filtered", "stale", "invalid", "unanswered", "cancelled", "lost"]
"""Reasons why an attempt is not trained."""


class DroppedSample(NamedTuple):
    """A sample that came back and is not trained, or that did not come back."""

    outcome: DropReason
    reason: str
    tokens: int
    """Sampled tokens."""
    env: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups of one optimizer batch, and the samples that were dropped while it was collected.

    `ages` holds the age of each sample that is trained. `restored_tokens` counts the sampled tokens, including dropped
    ones, that come from an earlier incarnation.
    """

    groups: tuple[Group, ...]
    dropped: tuple[DroppedSample, ...]
    ages: tuple[int, ...]
    restored_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """Report of one batch; the same on every rank except for `samples`, `tokens` and `seconds`.

    `samples` and `tokens` (sampled ones) are this rank's share; over all ranks each sample appears once.
    `optimizer_steps` counts the steps that were taken, `skipped_steps` those without a signal, `nonfinite_steps` those
    whose gradient was not finite, `stopped_steps` those left out because the KL exceeded `algorithm.kl_stop`. `meters`
    holds means over those of `learned_tokens` that have a weight; `learned_tokens` counts the sampled tokens of all
    ranks that went through the model in steps that were taken, once for each step. `meters`, `loss` and `grad_norm`
    mean nothing unless `has_learned`. `digest` is that of the float32 weights after the step (of this rank's, until
    `Learners` combines them), `layout` the ranks, threads and ZeRO stages that took it, `gpu` the kind of their
    GPUs, `deterministic` whether these repeat it to the digit.
    """

    loss: float
    grad_norm: float
    lr: float
    tokens: int
    optimizer_steps: int
    samples: tuple[SampleId, ...]
    seconds: float
    skipped_steps: int = 0
    nonfinite_steps: int = 0
    stopped_steps: int = 0
    learned_tokens: int = 0
    meters: dict[str, float] = field(default_factory=dict)
    digest: str = ""
    layout: str = ""
    gpu: str = ""
    deterministic: bool = False

    @property
    def has_learned(self) -> bool:
        """Whether the weights were updated."""
        return self.optimizer_steps > 0

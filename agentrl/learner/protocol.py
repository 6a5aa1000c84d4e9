"""The Learner contract: a batch becomes new weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from agentrl.types import StepReport, TrainSequence, Version


class Learner(Protocol):
    """One rank of the learner. Every rank is called with the same batch and takes its own share of it."""

    def step(self, batch: list[TrainSequence]) -> StepReport:
        """Train on one global batch; the loss does not depend on how it is split."""

    def logprobs(self, ids: list[list[int]], temperature: float = 1.0) -> list[list[float]]:
        """Logprobs of ids[1:] for each sequence, in the compute type that trains."""

    def stage(self, version: Version) -> Any:
        """Write the present weights down for the engines: rank 0 returns a `weights.sender.Staged`, the others None."""

    def save(self, folder: Path) -> None:
        """Write model, optimizer and schedule, whole or not at all; the model part loads with `from_pretrained`.

        Raises LearnerError where a weight is not finite, and writes nothing.
        """

    def load(self, folder: Path) -> None:
        """The inverse of `save`: training goes on exactly."""

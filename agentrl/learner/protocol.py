"""The Learner contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from agentrl.types import StepReport, TrainSequence, Version


class Learner(Protocol):
    """One rank of the learner. All ranks are called together, with the same arguments."""

    def step(self, batch: list[TrainSequence]) -> StepReport:
        """Train on one global batch, of which this rank takes its share. The loss does not depend on the split."""

    def logprobs(self, ids: list[list[int]], temperature: float = 1.0) -> list[list[float]]:
        """Logprobs of ids[1:] for each sequence, in the compute type of training."""

    def stage(self, version: Version) -> Any:
        """Write the current weights for the engines. Rank 0 returns a `weights.staging.Staged`, other ranks None."""

    def save(self, folder: Path) -> None:
        """Write model, optimizer and schedule as one atomic checkpoint; `from_pretrained` loads the model part.

        Raises LearnerError, and writes nothing, if a weight is not finite.
        """

    def load(self, folder: Path) -> None:
        """Continue exactly from a checkpoint that `save` wrote. Raises RunError if it cannot be read."""

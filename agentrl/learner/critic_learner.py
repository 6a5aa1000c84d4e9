"""One rank of a critic with resources of its own, which learns while the policy does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from agentrl.algorithms.sample import Column, TrainSequence
from agentrl.errors import LearnerError
from agentrl.learner import checkpoint
from agentrl.learner.critic import Critic
from agentrl.learner.rank import LearnerRank
from agentrl.learner.scorers import Compute
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.training_state import begin, refuse_nonfinite
from agentrl.learner.updates import gathered
from agentrl.losses.terms import means
from agentrl.types import StepReport


class CriticLearner(LearnerRank):
    """One rank of a separate critic: it computes the column "values", and learns from the returns."""

    role = "critic"

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
        super().__init__(spec, rank, world_size, master_addr, master_port)
        with self._activity("start"):
            self._critic = Critic(spec, self._layout)

    def step(self, batch: list[TrainSequence], _state: Mapping[str, float] | None = None) -> StepReport:
        """Take as many optimizer steps as the policy does. The report has no samples: the policy's ranks have them."""
        started = time.monotonic()
        with self._activity("step"):
            updates = self._critic.update(batch, self._updates)
            self._updates += self.spec.learner.updates
            meters = gathered(updates.meter.sums())
        return StepReport(
            loss=0.0,
            grad_norm=updates.grad_norm,
            lr=updates.lr,
            meters={**means(meters), **updates.own_meters},
            digest=updates.digest,
            tokens=0,
            optimizer_steps=len(updates.norms),
            samples=(),
            seconds=time.monotonic() - started,
            nonfinite_steps=updates.nonfinite,
        )

    def save(self, folder: Path, _state: Mapping[str, float] | None = None) -> None:
        """Begin a checkpoint with the critic's part, which the policy's ranks complete.

        Raises LearnerError, and writes nothing, if a weight is not finite.
        """
        with self._activity("save"):
            refuse_nonfinite(self._critic.nonfinite())
            self._critic.save(begin(folder) / checkpoint.CRITIC)

    def load(self, folder: Path) -> dict[str, float]:
        """Restore the critic of a checkpoint, and return the state of the algorithm.

        Raises RunError if the checkpoint cannot be read.
        """
        progress = checkpoint.read_progress(folder)
        self._critic.load(folder / checkpoint.CRITIC)
        self._updates = progress.updates
        return progress.state

    def _compute_of(self, column: Column) -> Compute:
        if column != "values":
            raise LearnerError(f"a critic does not compute the column {column!r}")
        return self._critic.values

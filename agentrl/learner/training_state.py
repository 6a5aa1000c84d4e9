"""The exact training state of a learner rank, saved as a checkpoint and loaded again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import distributed as dist

from agentrl.errors import LearnerError
from agentrl.learner import checkpoint, reference
from agentrl.learner.checkpoint import Progress
from agentrl.learner.critic import Critic
from agentrl.learner.deepspeed import DeepSpeedModel
from agentrl.learner.model import PackedModel
from agentrl.learner.shards import refuse_incomplete
from agentrl.learner.spec import LearnerSpec


@dataclass(frozen=True)
class TrainingState:
    """Everything that training changes on the policy's ranks: the policy, the critic, and a reference that moves.

    All ranks call each method together. If `is_begun`, the ranks of a separate critic have begun the checkpoint.
    """

    spec: LearnerSpec
    policy: DeepSpeedModel
    critic: Critic | None
    reference: PackedModel | None
    is_begun: bool = False

    def save(self, folder: Path, updates: int, state: dict[str, float]) -> None:
        """Write models, optimizers, the number of updates and the algorithm's `state` as one checkpoint.

        The folder gets its name when all ranks have written their part.

        Raises LearnerError if a weight is not finite, before anything is written, or if the first rank does not see the
        files of another one.
        """
        refuse_nonfinite([*self.policy.nonfinite(), *(self.critic.nonfinite() if self.critic else ())])
        is_first = dist.get_rank() == 0
        unfinished = checkpoint.partial(folder) if self.is_begun else begin(folder)
        self.policy.save(unfinished / checkpoint.STATE)
        if self.critic:
            self.critic.save(unfinished / checkpoint.CRITIC)
        self._write_models(unfinished, is_first=is_first)
        if self.reference is not None:
            reference.save(self.reference, unfinished / checkpoint.STATE, is_first=is_first)
        dist.barrier()
        if is_first:
            refuse_incomplete(unfinished, dist.get_world_size(), self._critic_ranks)
            checkpoint.commit(folder, Progress(updates, state))
        dist.barrier()

    @property
    def _critic_ranks(self) -> int:
        """The ranks that have written a critic."""
        if self.is_begun:
            return self.spec.critic.separate_ranks(self.spec.learner)
        return dist.get_world_size() if self.critic else 0

    def _write_models(self, folder: Path, *, is_first: bool) -> None:
        """Write the policy and its EMA as models, and the adapters as peft's files; every rank gathers them."""
        models = {checkpoint.MODEL: self.policy.weights(), checkpoint.EMA: self.policy.averaged_weights()}
        for name, tensors in models.items():
            if tensors is not None and is_first:
                checkpoint.write_model(self.spec.model, tensors, self.spec.compute, folder / name)
            elif tensors is not None:
                deque(tensors, maxlen=0)
        adapter = self.policy.adapter() if self.spec.lora.rank else []
        if adapter and is_first:
            self.policy.write_adapter(adapter, self.spec.model, folder / checkpoint.ADAPTER)

    def load(self, folder: Path) -> Progress:
        """Restore what the ranks of any layout saved. Raises RunError if the checkpoint cannot be read."""
        progress = checkpoint.read_progress(folder)
        self.policy.load(folder / checkpoint.STATE)
        if self.reference is not None:
            reference.load(self.reference, folder / checkpoint.STATE)
        if self.critic:
            self.critic.load(folder / checkpoint.CRITIC)
        return progress


def begin(folder: Path) -> Path:
    """Return the empty folder in which all ranks write a checkpoint until it is complete."""
    unfinished = checkpoint.partial(folder)
    if dist.get_rank() == 0:
        checkpoint.make_empty(unfinished)
    dist.barrier()
    return unfinished


def refuse_nonfinite(bad: Sequence[str]) -> None:
    """Raise LearnerError if there are names of tensors that are not finite."""
    if bad:
        raise LearnerError(
            f"{len(bad)} tensors of the model are not finite, such as {bad[0]}: no checkpoint is written"
        )

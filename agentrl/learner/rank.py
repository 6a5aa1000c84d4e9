"""One rank of a learner: its place in a process group, and what the ranks of policy and critic have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import distributed as dist

from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.errors import AlgorithmError, LearnerError
from agentrl.learner import tensor_parallel
from agentrl.learner.deepspeed import join_process_group
from agentrl.learner.determinism import advice, repeat_exactly
from agentrl.learner.part import Layout
from agentrl.learner.scorers import Compute, score
from agentrl.learner.sequence_parallel import SequenceGroup, check_models
from agentrl.learner.spec import LearnerSpec


class LearnerRank(ABC):
    """One rank of a learner; all ranks of its process group are called together, with the same arguments."""

    role = "learner"

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
        self.spec, self.rank, self.world_size = spec, rank, world_size
        self._device = spec.torch_device
        self._algorithm = make_algorithm(spec.algorithm, spec.run)
        self._updates = 0
        if spec.learner.threads:
            torch.set_num_threads(spec.learner.threads)
        repeat_exactly(spec)
        with self._activity("start"):
            join_process_group(spec, rank, world_size, master_addr, master_port)
            sharers = spec.learner.tensor_parallel  # they compute the same micro-batches
            self._layout = Layout.of(spec, rank // sharers, world_size // sharers, _sequence_group(spec))

    def score(self, batch: list[TrainSequence], columns: Sequence[Column]) -> dict[Column, dict[int, Array]]:
        """Compute columns for this rank's share of the batch: {column: {index in the batch: values [A]}}."""
        with self._activity("score"):
            part = self._layout.part(batch, range(len(batch)))
            return score(part, {column: self._compute_of(column) for column in columns})

    def close(self) -> None:
        """Leave the process group. Idempotent."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @abstractmethod
    def _compute_of(self, column: Column) -> Compute:
        """Return what computes a column. Raises LearnerError if no model of this rank does."""

    @property
    def _has_critic(self) -> bool:
        """Whether the algorithm learns values."""
        return "values" in self._algorithm.requirements.columns

    @contextmanager
    def _activity(self, name: str) -> Iterator[None]:
        """Name what fails; afterwards leave the cached GPU memory to an engine that shares the GPU."""
        try:
            yield
        except AlgorithmError as error:
            if hint := advice(error):
                raise AlgorithmError(f"{error}{hint}") from error
            raise
        except RuntimeError as error:
            raise LearnerError(f"{self.role} rank {self.rank} failed in {name}: {error}{advice(error)}") from error
        finally:
            if self.spec.yields_gpus:
                torch.cuda.empty_cache()


def _sequence_group(spec: LearnerSpec) -> SequenceGroup | None:
    """Return the ranks that share micro-batches, None if none do. Raises ConfigError for a model they cannot share."""
    section, models = spec.learner, [*filter(None, (spec.model, spec.critic_model, spec.teacher))]
    if section.tensor_parallel > 1:
        tensor_parallel.check_models(models, section.tensor_parallel)
    if section.sequence_parallel == 1:
        return None
    check_models(models, section.sequence_parallel)
    return SequenceGroup.join(section.sequence_parallel, section.step_timeout_s)

"""The frozen models of a learner rank, and the columns that models compute for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.learner.determinism import repeat_exactly
from agentrl.learner.micro_batch import MicroBatch, by_member
from agentrl.learner.model import PackedModel, freeze, load_model
from agentrl.learner.offload import lent, to_host
from agentrl.learner.part import Layout
from agentrl.learner.sharding import Sharding
from agentrl.learner.spec import LearnerSpec

Compute = Callable[[MicroBatch], Tensor]
"""Computes a column [A] for the actions of a micro-batch, without gradient."""


class Scorers:
    """Frozen models, the reference and the teacher, each of which computes the column of its name.

    With `offload` they are in CPU memory except inside `on_device`. A reference that `moves` keeps float32 weights.
    With `sharding` each rank holds a share of the others, which are `sharded`: all ranks compute together, inside of
    what `deepspeed.gathering` returns.
    """

    def __init__(
        self,
        spec: LearnerSpec,
        columns: Iterable[Column],
        *,
        offload: bool = False,
        moves: bool = False,
        sharding: Sharding | None = None,
    ) -> None:
        folders = {"reference": spec.model, "teacher": spec.teacher}
        self.models: dict[Column, PackedModel] = {}
        self.sharded: list[PackedModel] = []
        for column in sorted(columns):  # the ranks load sharded models together
            folder, is_exact = folders[column], moves and column == "reference"
            if folder is not None:
                block = None if is_exact or offload else sharding
                self.models[column] = model = _load(folder, spec, exact=is_exact, sharding=block)
                self.sharded += [model] if block else []
        self._device = spec.torch_device
        self._waiting = [values for model in self.models.values() for values in model.parameters() if offload]
        to_host(self._waiting)

    def on_device(self) -> AbstractContextManager[None]:
        """Return the block in which columns are computed."""
        return lent(self._waiting, self._device)

    def compute_of(self, column: Column) -> Compute:
        """Return what computes a column."""
        return partial(_logprobs, self.models[column])


def _load(folder: Path, spec: LearnerSpec, *, exact: bool, sharding: Sharding | None) -> PackedModel:
    model = load_model(folder, spec.compute, sharding=sharding, sharers=spec.learner.tensor_parallel).eval()
    model = model.requires_grad_(False) if exact else freeze(model)
    return model if sharding else model.to(spec.torch_device)


def _logprobs(model: PackedModel, micro_batch: MicroBatch) -> Tensor:
    with torch.no_grad():
        logprobs: Tensor = model(micro_batch)
        return logprobs


def score(packs: Iterable[MicroBatch], computes: Mapping[Column, Compute]) -> dict[Column, dict[int, Array]]:
    """Compute columns for the micro-batches of one batch: {column: {index in the batch: values [A]}}.

    The columns of all micro-batches stay on the device, one float32 for each action, until the last is launched: the
    host would wait for each of them before it packs the next. Nothing else of a micro-batch stays.
    """
    made: list[tuple[tuple[tuple[int, int], ...], dict[Column, Tensor]]] = []
    for micro_batch in packs:
        values = {column: compute(micro_batch).float() for column, compute in computes.items()}
        if not micro_batch.is_dummy:
            made.append((micro_batch.members, values))
    return {
        column: {
            index: row.double().numpy()
            for members, values in made
            for index, row in by_member(members, values[column].cpu())
        }
        for column in computes
    }


class SeparateScorers:
    """Frozen models alone in a process. They pack a batch as the learner's ranks do, so that no bit differs."""

    def __init__(self, spec: LearnerSpec) -> None:
        if spec.learner.threads:
            torch.set_num_threads(spec.learner.threads)
        repeat_exactly(spec)
        ranks = max(1, spec.learner.ranks)
        self._layouts = [Layout.of(spec, rank, ranks) for rank in range(ranks)]
        algorithm = make_algorithm(spec.algorithm, spec.run)
        columns = algorithm.frozen_columns(has_adapters=bool(spec.lora.rank))
        self._scorers = Scorers(spec, columns)

    def score(self, batch: list[TrainSequence], columns: Sequence[Column]) -> dict[Column, dict[int, Array]]:
        """Compute columns for the whole batch: {column: {index in the batch: values [A]}}."""
        computes = {column: self._scorers.compute_of(column) for column in columns}
        parts = (layout.part(batch, range(len(batch))) for layout in self._layouts)
        return score(chain.from_iterable(parts), computes)

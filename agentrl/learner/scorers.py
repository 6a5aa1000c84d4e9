"""The frozen models of a learner rank, and the columns that models compute for a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.sample import Array, Column
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.model import PackedModel, load_model
from agentrl.learner.part import Layout, Part
from agentrl.learner.spec import LearnerSpec

Compute = Callable[[MicroBatch], Tensor]
"""Computes a column [A] for the actions of a micro-batch, without gradient."""


class Scorers:
    """The frozen models that an algorithm needs: the reference and the teacher, each with the column of its name."""

    def __init__(self, spec: LearnerSpec, algorithm: Algorithm, layout: Layout) -> None:
        columns = algorithm.requirements.columns
        # Unless it moves, the reference of adapters is the policy without them.
        has_reference = not spec.lora.rank or algorithm.config.reference_every > 0
        folders = {"reference": spec.model if has_reference else None, "teacher": spec.teacher}
        self.models: dict[str, PackedModel] = {
            column: load_model(folder, spec.compute).to(layout.device).eval().requires_grad_(False)
            for column, folder in folders.items()
            if column in columns and folder is not None
        }

    def logprobs(self, column: Column, micro_batch: MicroBatch) -> Tensor:
        """Return the column [A] that a frozen model computes."""
        with torch.no_grad():
            logprobs: Tensor = self.models[column](micro_batch)
            return logprobs


def score(part: Part, computes: Mapping[Column, Compute]) -> dict[Column, dict[int, Array]]:
    """Compute columns for a rank's share of a batch: {column: {index in the batch: values [A]}}."""
    out: dict[Column, dict[int, Array]] = {column: {} for column in computes}
    for micro_batch in part:
        for column, compute in computes.items():
            values = compute(micro_batch).float().cpu()
            if not micro_batch.is_dummy:
                out[column] |= {index: row.double().numpy() for index, row in micro_batch.by_member(values)}
    return out

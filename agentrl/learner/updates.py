"""The optimizer steps of one batch: their order, and what is reported of them."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from agentrl.learner.part import Part
from agentrl.losses.terms import Meter

T = TypeVar("T")


class Updates:
    """The optimizer steps of one batch on one model: sums over those that were taken, counts of the others.

    `loss` is this rank's part of the sum. `own_meters` are the same on all ranks, `digest` is that of this rank's
    weights afterwards.
    """

    def __init__(self, device: torch.device) -> None:
        self.loss, self.meter = torch.zeros((), device=device), Meter()
        self.norms: list[float] = []
        self.lr = 0.0
        self.tokens = self.skipped = self.nonfinite = self.stopped = 0
        self.own_meters: dict[str, float] = {}
        self.digest = ""

    def add(self, norm: float, loss: Tensor, meter: Meter, part: Part) -> None:
        """Add a step with the norm of its gradient; if that is not finite, the step was not taken."""
        if math.isfinite(norm):
            self.norms.append(norm)
            self.loss += loss / part.layout.ranks
            self.tokens += part.actions
            self.meter.add(meter)
        else:
            self.nonfinite += 1

    @property
    def grad_norm(self) -> float:
        """Mean norm of the gradients before clipping."""
        return sum(self.norms) / max(1, len(self.norms))


def gathered(own: T) -> list[T]:
    """Return the values of all ranks, which call this together."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, own)
    return values


def update_order(parts: int, epochs: int, first: int) -> list[int]:
    """Return the part of each update: as they are in the first epoch, then shuffled by the number of the `first`."""
    order = list(range(parts))
    for epoch in range(1, epochs):
        order += [int(index) for index in np.random.default_rng([first, epoch]).permutation(parts)]
    return order

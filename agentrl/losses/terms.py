"""What a loss sees: the sampled tokens of a micro-batch, with helpers by sequence. Suffix: A sampled tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

MeterSums = dict[str, tuple[float, float]]
"""The sum of the weighted values and the sum of the weights, by name."""
LOGRATIO_BOUND = 20.0
"""In nats. Larger log-ratios are clamped, so that no ratio and no product of ratios overflows float32."""


def bounded_exp(logratio: Tensor) -> Tensor:
    """exp(logratio), with the log-ratio clamped to LOGRATIO_BOUND."""
    return torch.exp(logratio.clamp(-LOGRATIO_BOUND, LOGRATIO_BOUND))


class Meter:
    """Means over tokens of what is metered. Sums stay on the device of the values until they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def __call__(self, name: str, values: Tensor, weights: Tensor | None = None) -> None:
        """Add values [A] to the mean called `name`; `weights` [A] says how much each counts, by default 1."""
        values = values.detach().double()
        counts = torch.ones_like(values) if weights is None else weights.detach().double()
        sums = torch.stack([(values * counts).sum(), counts.sum()])
        self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    def add(self, other: Meter) -> None:
        """Add what another meter has summed."""
        for name, sums in other._sums.items():
            self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    @property
    def names(self) -> set[str]:
        """The names of the means."""
        return set(self._sums)

    def sums(self) -> MeterSums:
        """Return the sums as numbers."""
        return {name: (float(sums[0]), float(sums[1])) for name, sums in self._sums.items()}


def means(meters: Iterable[MeterSums]) -> dict[str, float]:
    """Return the mean of each name over the sums of several meters, such as those of all ranks.

    The mean importance weight and its square give `importance_ess`, the effective sample size as a share of the tokens
    (Kish 1965): (sum of w)^2 / (n sum of w^2).
    """
    totals: MeterSums = {}
    for name, (value, count) in (item for sums in meters for item in sums.items()):
        total, number = totals.get(name, (0.0, 0.0))
        totals[name] = (total + value, number + count)
    found = {name: value / count if count else 0.0 for name, (value, count) in sorted(totals.items())}
    if "importance_square" in found:
        square = found.pop("importance_square")
        found["importance_ess"] = found["importance_mean"] ** 2 / square if square else 0.0
    return found


@dataclass(frozen=True)
class Terms:
    """The sampled tokens of a micro-batch: tensors of length A in float32. Sequences are always whole.

    `logprobs` and `entropy` are the model's and carry gradients. `sampler` is the logprob with which each token was
    sampled; `old` the learner's before the first update of the batch, or the sampler's (`old_logprobs`). `sequence` is
    the index of each token's sequence, from 0 and below A. `columns` holds what the algorithm needs besides: reference,
    teacher, values, returns.
    """

    logprobs: Tensor
    entropy: Tensor
    sampler: Tensor
    old: Tensor
    advantages: Tensor
    weights: Tensor
    sequence: Tensor
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    state: Mapping[str, float] = field(default_factory=dict)
    meters: Meter = field(default_factory=Meter)

    def meter(self, name: str, values: Tensor, weights: Tensor | None = None) -> None:
        """Add values [A] to the mean called `name`, over the tokens with a weight, or weighted by `weights` [A]."""
        self.meters(name, values, self.weights != 0 if weights is None else weights)

    def column(self, name: str) -> Tensor:
        """Return a column. Raises AttributeError if neither the algorithm nor the loss declares it."""
        if name not in self.columns:
            remedy = "add it to needs.columns of the algorithm, or to @reads of a loss of its own"
            raise AttributeError(f"the column {name!r} is not declared: {remedy}", obj=self)
        return self.columns[name]

    def by_sequence(self, values: Tensor, how: Literal["mean", "sum"] = "mean") -> Tensor:
        """Return the mean or the sum [A] of each token's sequence over its tokens with a weight; keeps gradients."""
        count = len(self.sequence)  # there are no more sequences; the host would wait for a GPU that says how many
        counted = (self.weights != 0).to(values.dtype)
        totals = values.new_zeros(count).index_add(0, self.sequence, values * counted)
        if how == "mean":
            totals = totals / values.new_zeros(count).index_add(0, self.sequence, counted).clamp(min=1)
        return totals[self.sequence]

    @property
    def ratio(self) -> Tensor:
        """policy / old [A], with gradient."""
        return bounded_exp(self.logprobs - self.old)

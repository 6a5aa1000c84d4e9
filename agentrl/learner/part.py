"""The sequences of one optimizer step, and one rank's share of them in micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.learner.batch import PrefixTree, build_trees, plan_micro_batches
from agentrl.learner.micro_batch import MicroBatch, dummy_micro_batch, pack
from agentrl.learner.spec import LearnerSpec


@dataclass(frozen=True)
class Layout:
    """One rank of the learner: its place among the ranks, its device, the most tokens of a micro-batch."""

    rank: int
    ranks: int
    budget: int
    device: torch.device
    compute: torch.dtype

    @classmethod
    def of(cls, spec: LearnerSpec, rank: int, ranks: int) -> Layout:
        """Return the layout of a rank."""
        return cls(rank, ranks, spec.micro_batch_tokens, spec.torch_device, spec.compute)

    def part(self, batch: Sequence[TrainSequence], indices: Iterable[int]) -> Part:
        """Plan the sequences of `indices` as one optimizer step."""
        trees = build_trees(batch, indices)
        plan = plan_micro_batches(trees, self.ranks, self.budget)[self.rank] if trees else []
        return Part(self, list(batch), trees, plan)


@dataclass
class Part:
    """The sequences of one optimizer step, and this rank's share: prefix trees by micro-batch.

    `old` holds the logprobs of each micro-batch before the first update, if they were computed. Every rank has the same
    number of micro-batches; if no sequence has a gradient, there are none.
    """

    layout: Layout
    batch: list[TrainSequence]
    trees: list[PrefixTree]
    plan: list[list[PrefixTree]]
    old: list[Tensor] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[MicroBatch]:
        """Pack the micro-batches one after the other; a GPU still computes one while the next is packed and copied."""
        for content in self.plan:
            packed = pack(self.batch, content) if content else dummy_micro_batch(self.batch, self.trees)
            yield packed.to(self.layout.device, self.layout.compute)

    @property
    def total(self) -> float:
        """The number by which the summed loss is divided."""
        return sum(sequence.share for sequence in self.batch)

    @property
    def scale(self) -> float:
        """The factor of this rank's summed loss. DeepSpeed averages gradients over ranks."""
        return self.layout.ranks / self.total if self.total else 0.0

    @property
    def actions(self) -> int:
        """The sampled tokens of this rank's share."""
        return sum(self.batch[index].actions for content in self.plan for tree in content for index in tree.members)

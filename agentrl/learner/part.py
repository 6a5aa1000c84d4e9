"""The sequences of one optimizer step, and one rank's share of them in micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.learner.batch import PrefixTree, build_trees, plan_micro_batches
from agentrl.learner.micro_batch import MicroBatch, dummy_micro_batch, pack
from agentrl.learner.sequence_parallel import SequenceGroup
from agentrl.learner.spec import LearnerSpec


@dataclass(frozen=True)
class Layout:
    """One rank of the learner: its place among the ranks, its device, the most tokens of a forward pass.

    The ranks of a `group` share each micro-batch, of up to as many times these tokens.
    """

    rank: int
    ranks: int
    budget: int
    device: torch.device
    compute: torch.dtype
    group: SequenceGroup | None = None

    @classmethod
    def of(cls, spec: LearnerSpec, rank: int, ranks: int, group: SequenceGroup | None = None) -> Layout:
        """Return the layout of a rank."""
        return cls(rank, ranks, spec.micro_batch_tokens, spec.torch_device, spec.compute, group)

    @property
    def sharers(self) -> int:
        """The number of ranks that share a micro-batch."""
        return self.group.size if self.group else 1

    def part(self, batch: Sequence[TrainSequence], indices: Iterable[int]) -> Part:
        """Plan the sequences of `indices` as one optimizer step."""
        trees = build_trees(batch, indices)
        size = self.sharers
        plan = plan_micro_batches(trees, self.ranks // size, self.budget * size)[self.rank // size] if trees else []
        return Part(self, list(batch), trees, plan)


@dataclass
class Part:
    """The sequences of one optimizer step, and this rank's share, or its group's: prefix trees by micro-batch.

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
        """Pack the micro-batches one after the other; a GPU still computes one while the next is packed and copied.

        At ZeRO stage 3 DeepSpeed waits at the end of each backward pass.
        """
        layout, ranks = self.layout, self.layout.sharers
        for content in self.plan:
            packed = pack(self.batch, content, ranks) if content else dummy_micro_batch(self.batch, self.trees, ranks)
            yield packed.to(layout.device, layout.compute, layout.group)

    @property
    def total(self) -> float:
        """The number by which the summed loss is divided."""
        return sum(sequence.share for sequence in self.batch)

    @property
    def scale(self) -> float:
        """The factor of this rank's summed loss. DeepSpeed averages gradients over all ranks.

        The ranks of a group have parts of the gradient of one micro-batch, which add up, as those of other ranks do.
        """
        return self.layout.ranks / self.total if self.total else 0.0

    @property
    def actions(self) -> int:
        """The sampled tokens of this rank's share, or its group's."""
        return sum(self.batch[index].actions for content in self.plan for tree in content for index in tree.members)

"""A micro-batch as tensors: prefix trees concatenated in one row without padding. Suffixes: N tokens, A actions."""
# ruff: noqa: N803, N806, N815

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.errors import LearnerError
from agentrl.learner.attention.exchanged import Exchanged
from agentrl.learner.attention.gathered import Gathered
from agentrl.learner.attention.spans import Attention, Span
from agentrl.learner.attention.tiles import Tiles
from agentrl.learner.batch import PrefixTree
from agentrl.learner.memory import copied
from agentrl.learner.sequence_parallel import SequenceGroup, Share


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward pass. The hidden state at `source_A[a]` predicts action a.

    `columns` are the sequences' own, in the order of the actions; `sequence_A` is the index of each action's sequence.
    `members` holds (index in the batch, number of actions) of each. `is_dummy` is True for one that must not count.

    With a `share`, the tensors of tokens, `source_A`, `targets_A` and `temperature_A` are those of this rank's share;
    `spans`, `sequence_A`, `columns` and `members` are those of the whole micro-batch.
    """

    ids_N: Tensor
    positions_N: Tensor
    spans: tuple[Span, ...]
    source_A: Tensor
    targets_A: Tensor
    temperature_A: Tensor
    sequence_A: Tensor
    columns: dict[str, Tensor]
    members: tuple[tuple[int, int], ...]
    attention: Attention | None = None
    is_dummy: bool = False
    share: Share | None = None

    def to(self, device: torch.device, dtype: torch.dtype, group: SequenceGroup | None = None) -> MicroBatch:
        """Return the micro-batch on a device, with the attention that is fastest there in the compute type.

        Of a micro-batch that is packed for a `group` of ranks, return this rank's share.
        """
        own = self if group is None else self._shared(group)
        names = [each.name for each in fields(self) if each.name.endswith(("_N", "_A"))]
        moved: dict[str, Any] = {name: copied(getattr(own, name), device) for name in names}
        columns = {name: copied(values, device) for name, values in self.columns.items()}
        positions_N = moved["positions_N"] if group is None else copied(self.positions_N, device)
        whole = attention_of(self.spans, positions_N, device.type, dtype)
        attention = whole if group is None else Exchanged(whole, group)
        return replace(own, attention=attention, columns=columns, share=own.share and own.share.to(device), **moved)

    def _shared(self, group: SequenceGroup) -> MicroBatch:
        """Return this rank's contiguous share of the tokens, and the actions that these predict."""
        tokens = len(self.ids_N) // group.size
        own = slice(group.index * tokens, (group.index + 1) * tokens)
        own_A = torch.nonzero((self.source_A >= own.start) & (self.source_A < own.stop)).squeeze(1)
        return replace(
            self,
            ids_N=self.ids_N[own],
            positions_N=self.positions_N[own],
            source_A=self.source_A[own_A] - own.start,
            targets_A=self.targets_A[own_A],
            temperature_A=self.temperature_A[own_A],
            share=Share(group, own_A, len(self.source_A)),
        )

    def join(self, values_A: Tensor) -> Tensor:
        """Return the values of all actions, from those of this rank's; differentiable."""
        return values_A if self.share is None else self.share.join(values_A)

    def over_all(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a loss of values of this rank's actions, from one of the values of all actions."""
        return loss if self.share is None else lambda *values: loss(*map(self.join, values))


def by_member(members: Sequence[tuple[int, int]], values_A: Tensor) -> list[tuple[int, Tensor]]:
    """Split values of the actions of a micro-batch with these `members`: (index in the batch, its values)."""
    indices, lengths = zip(*members, strict=True)
    return list(zip(indices, torch.split(values_A, list(lengths)), strict=True))


def attention_of(spans: Sequence[Span], positions_N: Tensor, device_type: str, dtype: torch.dtype) -> Attention:
    """Return the attention that is fastest on a device: flash attention where it exists, on GPUs in 16 bits."""
    if device_type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        return Gathered(spans, positions_N.device)
    return Tiles(spans, positions_N)


def pack(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree], ranks: int = 1) -> MicroBatch:
    """Concatenate trees whose members are sequences of `batch`, for a group of `ranks` that share the tokens.

    Tokens that nothing reads pad the row to a multiple of the ranks.

    Raises LearnerError for a sequence that begins with a sampled token, because no hidden state predicts it.
    """
    ids: list[NDArray[np.int32]] = []
    positions: list[NDArray[np.int64]] = []
    spans: list[Span] = []
    source: list[NDArray[np.int64]] = []
    packed: list[int] = []
    if any(batch[index].mask[0] for tree in trees for index in tree.members):
        raise LearnerError("a sequence begins with a sampled token: nothing predicts it. Give the model a prompt.")
    end = 0
    for tree in trees:
        base = end
        ids.append(batch[tree.members[0]].ids[: tree.prefix])
        positions.append(np.arange(tree.prefix))
        end += tree.prefix
        if tree.prefix:
            spans.append(Span(base, end, base, base))
        for index, length in zip(tree.members, tree.lengths, strict=True):
            sequence, shift = batch[index], end - tree.prefix
            ids.append(sequence.ids[tree.prefix : length])
            positions.append(np.arange(tree.prefix, length))
            sampled = np.flatnonzero(sequence.mask)
            source.append(np.where(sampled <= tree.prefix, base, shift) + sampled - 1)
            packed.append(index)
            spans.append(Span(end, end + length - tree.prefix, base, base + tree.prefix))
            end += length - tree.prefix
    if padding := -end % ranks:
        ids.append(np.zeros(padding, dtype=np.int32))
        positions.append(np.arange(padding))
        spans.append(Span(end, end + padding, end, end))
    rows = [batch[index] for index in packed]
    lengths = [row.actions for row in rows]
    names = [name for name, _ in rows[0].columns.items()]
    return MicroBatch(
        torch.from_numpy(np.concatenate(ids).astype(np.int64)),
        torch.from_numpy(np.concatenate(positions)),
        tuple(spans),
        torch.from_numpy(np.concatenate(source)),
        torch.from_numpy(np.concatenate([row.ids[row.mask] for row in rows]).astype(np.int64)),
        torch.from_numpy(np.repeat(np.array([row.temperature for row in rows], dtype=np.float32), lengths)),
        torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        {name: torch.from_numpy(np.concatenate([getattr(row.columns, name) for row in rows])) for name in names},
        tuple(zip(packed, lengths, strict=True)),
    )


def dummy_micro_batch(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree], ranks: int = 1) -> MicroBatch:
    """Return the shortest branch, for a rank that has no trees left while others do."""
    tree = min(trees, key=lambda tree: tree.lengths[-1])
    shortest = PrefixTree(tree.prefix, tree.members[-1:], tree.lengths[-1:])
    return replace(pack(batch, [shortest], ranks), is_dummy=True)

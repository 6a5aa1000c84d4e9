"""A micro-batch as tensors: prefix trees concatenated in one row without padding. Suffixes: N tokens, A actions."""
# ruff: noqa: N803, N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.errors import LearnerError
from agentrl.learner.attention.gathered import Gathered
from agentrl.learner.attention.spans import Attention, Span
from agentrl.learner.attention.tiles import Tiles
from agentrl.learner.batch import PrefixTree
from agentrl.learner.memory import copied


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward pass. The hidden state at `source_A[a]` predicts action a.

    `columns` are the sequences' own, in the order of the actions; `sequence_A` is the index of each action's sequence.
    `members` holds (index in the batch, number of actions) of each. `is_dummy` is True for one that must not count.
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

    def to(self, device: torch.device, dtype: torch.dtype) -> MicroBatch:
        """Return the micro-batch on a device, with the attention that is fastest there in the compute type."""
        names = [each.name for each in fields(self) if each.name.endswith(("_N", "_A"))]
        moved: dict[str, Any] = {name: copied(getattr(self, name), device) for name in names}
        columns = {name: copied(values, device) for name, values in self.columns.items()}
        attention = attention_of(self.spans, moved["positions_N"], device.type, dtype)
        return replace(self, attention=attention, columns=columns, **moved)

    def by_member(self, values_A: Tensor) -> list[tuple[int, Tensor]]:
        """Split values of the actions by sequence: (index in the batch, its values)."""
        indices, lengths = zip(*self.members, strict=True)
        return list(zip(indices, torch.split(values_A, list(lengths)), strict=True))


def attention_of(spans: Sequence[Span], positions_N: Tensor, device_type: str, dtype: torch.dtype) -> Attention:
    """Return the attention that is fastest on a device: flash attention where it exists, on GPUs in 16 bits."""
    if device_type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        return Gathered(spans, positions_N.device)
    return Tiles(spans, positions_N)


def pack(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree]) -> MicroBatch:
    """Concatenate trees whose members are sequences of `batch`.

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


def dummy_micro_batch(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree]) -> MicroBatch:
    """Return the shortest branch, for a rank that has no trees left while others do."""
    tree = min(trees, key=lambda tree: tree.lengths[-1])
    return replace(pack(batch, [PrefixTree(tree.prefix, tree.members[-1:], tree.lengths[-1:])]), is_dummy=True)

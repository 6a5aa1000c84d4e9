"""A micro-batch as tensors: prefix trees concatenated in one row without padding. Suffixes: N tokens, A actions."""
# ruff: noqa: N803, N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.errors import LearnerError
from agentrl.learner.batch import PrefixTree

BLOCK = 256


@dataclass(frozen=True, slots=True)
class Block:
    """Attention block: queries [start, stop) attend to keys [prefix, prefix_stop) and then [start, stop).

    `bias_QK` is 0 where a query sees a key and -inf elsewhere.
    """

    start: int
    stop: int
    prefix: int
    prefix_stop: int
    bias_QK: Tensor


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward pass. The hidden state at `source_A[a]` predicts action a.

    `columns` are the sequences' own, in the order of the actions; `sequence_A` is the index of each action's sequence.
    `members` holds (index in the batch, number of actions) of each. `is_dummy` is True for one that must not count.
    """

    ids_N: Tensor
    positions_N: Tensor
    blocks: tuple[Block, ...]
    source_A: Tensor
    targets_A: Tensor
    temperature_A: Tensor
    sequence_A: Tensor
    columns: dict[str, Tensor]
    members: tuple[tuple[int, int], ...]
    is_dummy: bool = False

    def to(self, device: torch.device, dtype: torch.dtype) -> MicroBatch:
        """Return the micro-batch on a device, with attention biases in the compute type."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name.endswith(("_N", "_A"))}
        blocks = tuple(replace(block, bias_QK=block.bias_QK.to(device, dtype)) for block in self.blocks)
        columns = {name: values.to(device) for name, values in self.columns.items()}
        return replace(self, blocks=blocks, columns=columns, **moved)

    def by_member(self, values_A: Tensor) -> list[tuple[int, Tensor]]:
        """Split values of the actions by sequence: (index in the batch, its values)."""
        indices, lengths = zip(*self.members, strict=True)
        return list(zip(indices, torch.split(values_A, list(lengths)), strict=True))


def pack(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree]) -> MicroBatch:
    """Concatenate trees whose members are sequences of `batch`.

    Raises LearnerError for a sequence that begins with a sampled token, because no hidden state predicts it.
    """
    ids: list[NDArray[np.int32]] = []
    positions: list[NDArray[np.int64]] = []
    blocks: list[Block] = []
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
        for index, length in zip(tree.members, tree.lengths, strict=True):
            sequence, shift = batch[index], end - tree.prefix
            ids.append(sequence.ids[tree.prefix : length])
            positions.append(np.arange(tree.prefix, length))
            sampled = np.flatnonzero(sequence.mask)
            source.append(np.where(sampled <= tree.prefix, base, shift) + sampled - 1)
            packed.append(index)
            end += length - tree.prefix
        blocks += _blocks(tree, base)
    rows = [batch[index] for index in packed]
    lengths = [row.actions for row in rows]
    names = [name for name, _ in rows[0].columns.items()]
    return MicroBatch(
        torch.from_numpy(np.concatenate(ids).astype(np.int64)),
        torch.from_numpy(np.concatenate(positions)),
        tuple(blocks),
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


def _blocks(tree: PrefixTree, base: int) -> list[Block]:
    """About BLOCK queries each, from whole branches: the cost of attention stays linear in the number of branches."""
    blocks: list[Block] = []
    parts = [tree.prefix] if tree.prefix else []
    start = base
    for length in tree.lengths:
        if parts and sum(parts) + length - tree.prefix > BLOCK:
            blocks.append(_block(tree, base, start, parts))
            start += sum(parts)
            parts = []
        parts.append(length - tree.prefix)
    return [*blocks, _block(tree, base, start, parts)] if parts else blocks


def _block(tree: PrefixTree, base: int, start: int, parts: Sequence[int]) -> Block:
    queries = sum(parts)
    owner = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor(parts))
    seen = (owner[:, None] == owner[None, :]).tril()
    if start == base:  # this block contains the prefix itself
        seen[:, : tree.prefix] |= torch.ones(queries, tree.prefix, dtype=torch.bool).tril()
        prefix = prefix_stop = base
    else:
        seen = torch.cat([torch.ones(queries, tree.prefix, dtype=torch.bool), seen], 1)
        prefix, prefix_stop = base, base + tree.prefix
    bias = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))
    return Block(start, start + queries, prefix, prefix_stop, bias)

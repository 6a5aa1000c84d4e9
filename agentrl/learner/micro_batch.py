"""A pack: trees laid end to end in one row without padding, as tensors. Suffixes: N tokens, A actions."""
# ruff: noqa: N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from agentrl.errors import LearnerError
from agentrl.learner.batch import Tree
from agentrl.types import TrainSequence

BLOCK = 256


@dataclass(frozen=True, slots=True)
class Block:
    """Queries [start, stop) see the keys [prefix, prefix_stop) and [start, stop) where `bias_QK` is 0, not -inf."""

    start: int
    stop: int
    prefix: int
    prefix_stop: int
    bias_QK: Tensor


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward pass. Action a is predicted by the hidden state at `source_A[a]`; a dummy has `weight` 0."""

    ids_N: Tensor
    positions_N: Tensor
    blocks: tuple[Block, ...]
    source_A: Tensor
    targets_A: Tensor
    temperature_A: Tensor
    advantages_A: Tensor
    sampler_A: Tensor
    members: tuple[tuple[int, int], ...]
    weight: float = 1.0

    def to(self, device: torch.device, dtype: torch.dtype) -> MicroBatch:
        """The pack on a device, its attention biases in the compute type."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name.endswith(("_N", "_A"))}
        blocks = tuple(replace(block, bias_QK=block.bias_QK.to(device, dtype)) for block in self.blocks)
        return replace(self, blocks=blocks, **moved)


def pack(batch: Sequence[TrainSequence], grown: Sequence[Tree]) -> MicroBatch:
    """Lay the trees end to end. `members` of the result: (place in the batch, actions) in the order of the actions."""
    ids: list[int] = []
    positions: list[int] = []
    blocks: list[Block] = []
    source: list[int] = []
    actions: list[tuple[int, float, float, float]] = []
    members: list[tuple[int, int]] = []
    if any(batch[place].mask[0] for tree in grown for place in tree.members):
        raise LearnerError("a sequence begins with a sampled token: nothing predicts it. Give the model a prompt.")
    for tree in grown:
        base = len(ids)
        ids += batch[tree.members[0]].ids[: tree.prefix]
        positions += range(tree.prefix)
        for place, length in zip(tree.members, tree.lengths, strict=True):
            sequence, shift = batch[place], len(ids) - tree.prefix
            ids += sequence.ids[tree.prefix : length]
            positions += range(tree.prefix, length)
            acts = [t for t in range(1, length + 1) if sequence.mask[t]]
            source += [(base if t <= tree.prefix else shift) + t - 1 for t in acts]
            actions += [
                (sequence.ids[t], sequence.temperature, sequence.advantages[t], sequence.sampler_logprobs[t])
                for t in acts
            ]
            members.append((place, len(acts)))
        blocks += _blocks(tree, base)
    targets, temperature, advantages, sampler = zip(*actions, strict=True)
    return MicroBatch(
        torch.tensor(ids),
        torch.tensor(positions),
        tuple(blocks),
        torch.tensor(source),
        torch.tensor(targets),
        torch.tensor(temperature, dtype=torch.float32),
        torch.tensor(advantages, dtype=torch.float32),
        torch.tensor(sampler, dtype=torch.float32),
        tuple(members),
    )


def dummy_micro_batch(batch: Sequence[TrainSequence], grown: Sequence[Tree]) -> MicroBatch:
    """The shortest branch once more at weight 0: for a rank that has fewer passes than the others."""
    tree = min(grown, key=lambda tree: tree.lengths[-1])
    return replace(pack(batch, [Tree(tree.prefix, tree.members[-1:], tree.lengths[-1:])]), weight=0.0)


def _blocks(tree: Tree, base: int) -> list[Block]:
    """Branches side by side, about BLOCK queries at a time: the cost of attention stays linear in their number."""
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


def _block(tree: Tree, base: int, start: int, parts: Sequence[int]) -> Block:
    queries = sum(parts)
    owner = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor(parts))
    seen = (owner[:, None] == owner[None, :]).tril()
    if start == base:  # this block holds the prefix itself
        seen[:, : tree.prefix] |= torch.ones(queries, tree.prefix, dtype=torch.bool).tril()
        prefix = prefix_stop = base
    else:
        seen = torch.cat([torch.ones(queries, tree.prefix, dtype=torch.bool), seen], 1)
        prefix, prefix_stop = base, base + tree.prefix
    bias = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))
    return Block(start, start + queries, prefix, prefix_stop, bias)

"""A micro-batch as tensors: prefix trees concatenated in one row without padding. Suffixes: N tokens, A actions."""
# ruff: noqa: N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from agentrl.errors import LearnerError
from agentrl.learner.batch import PrefixTree
from agentrl.types import TrainSequence

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

    `members` holds (index in the batch, number of actions) in the order of the actions. `weight` is 0 for a dummy.
    """

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
        """Return the micro-batch on a device, with attention biases in the compute type."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name.endswith(("_N", "_A"))}
        blocks = tuple(replace(block, bias_QK=block.bias_QK.to(device, dtype)) for block in self.blocks)
        return replace(self, blocks=blocks, **moved)


def pack(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree]) -> MicroBatch:
    """Concatenate trees whose members are sequences of `batch`.

    Raises LearnerError for a sequence that begins with a sampled token, because no hidden state predicts it.
    """
    ids: list[int] = []
    positions: list[int] = []
    blocks: list[Block] = []
    source: list[int] = []
    actions: list[tuple[int, float, float, float]] = []
    members: list[tuple[int, int]] = []
    if any(batch[index].mask[0] for tree in trees for index in tree.members):
        raise LearnerError("a sequence begins with a sampled token: nothing predicts it. Give the model a prompt.")
    for tree in trees:
        base = len(ids)
        ids += batch[tree.members[0]].ids[: tree.prefix]
        positions += range(tree.prefix)
        for index, length in zip(tree.members, tree.lengths, strict=True):
            sequence, shift = batch[index], len(ids) - tree.prefix
            ids += sequence.ids[tree.prefix : length]
            positions += range(tree.prefix, length)
            sampled = [t for t in range(1, length + 1) if sequence.mask[t]]
            source += [(base if t <= tree.prefix else shift) + t - 1 for t in sampled]
            actions += [
                (sequence.ids[t], sequence.temperature, sequence.advantages[t], sequence.sampler_logprobs[t])
                for t in sampled
            ]
            members.append((index, len(sampled)))
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


def dummy_micro_batch(batch: Sequence[TrainSequence], trees: Sequence[PrefixTree]) -> MicroBatch:
    """Return the shortest branch with weight 0, for a rank that has no trees left while others do."""
    tree = min(trees, key=lambda tree: tree.lengths[-1])
    return replace(pack(batch, [PrefixTree(tree.prefix, tree.members[-1:], tree.lengths[-1:])]), weight=0.0)


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

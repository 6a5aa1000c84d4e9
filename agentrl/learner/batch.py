"""From a batch to micro-batches: updates, prefix trees, and their distribution over ranks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.algorithms.sample import TrainSequence


def groups_with_signal(batch: Iterable[TrainSequence]) -> set[int]:
    """Ids of the groups in which any sequence has a signal."""
    return {sequence.sample.group for sequence in batch if sequence.has_signal}


def with_gradient(batch: Sequence[TrainSequence], *, needs_signal: bool) -> list[int]:
    """Indices of the sequences with a weight, and with an advantage too if `needs_signal`."""
    return [n for n, one in enumerate(batch) if (one.has_signal if needs_signal else np.any(one.columns.weights))]


def split_updates(batch: Sequence[TrainSequence], count: int) -> list[list[TrainSequence]]:
    """Split a batch into at most `count` parts of nearly equal size. Groups stay whole if there are enough of them."""
    groups = list({sequence.sample.group: None for sequence in batch})
    if len(groups) >= count:
        part_of = {group: index % count for index, group in enumerate(groups)}
        parts = [[s for s in batch if part_of[s.sample.group] == part] for part in range(count)]
    else:
        parts = [list(batch[part::count]) for part in range(count)]
    return [part for part in parts if part]


# --------------------------------------------------------------------------------------------------------------
# Prefix trees: the context that the members of a group share goes through the model once.


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Sequences that share their first `prefix` tokens, all context. `members` are indices into the batch.

    `lengths` counts the input tokens of each member: all but its last, which predicts nothing.
    """

    prefix: int
    members: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that go through the model: the prefix once, then the rest of each branch."""
        return self.prefix + sum(length - self.prefix for length in self.lengths)


def build_trees(batch: Sequence[TrainSequence], members: Iterable[int]) -> list[PrefixTree]:
    """Return one tree for each group; `members` are the indices of the sequences to include."""
    groups: dict[int, list[int]] = {}
    for index in members:
        groups.setdefault(batch[index].sample.group, []).append(index)
    return [_tree(batch, indices) for indices in groups.values()]


def _tree(batch: Sequence[TrainSequence], indices: list[int]) -> PrefixTree:
    prefix = min(int(batch[index].mask.argmax()) for index in indices)
    first = batch[indices[0]].ids
    for index in indices[1:]:
        differs = np.flatnonzero(batch[index].ids[:prefix] != first[:prefix])
        prefix = int(differs[0]) if len(differs) else prefix
    indices.sort(key=lambda index: -len(batch[index].ids))
    return PrefixTree(prefix, tuple(indices), tuple(len(batch[index].ids) - 1 for index in indices))


def split_tree(tree: PrefixTree, budget: int) -> list[PrefixTree]:
    """Split a tree into parts of at most `budget` tokens, each with the prefix. One longer branch is a part alone."""
    parts: list[PrefixTree] = []
    start = 0
    for stop in range(1, len(tree.members) + 1):
        if stop - start > 1 and _part(tree, start, stop).tokens > budget:
            parts.append(_part(tree, start, stop - 1))
            start = stop - 1
    return [*parts, _part(tree, start, len(tree.members))]


def _part(tree: PrefixTree, start: int, stop: int) -> PrefixTree:
    return PrefixTree(tree.prefix, tree.members[start:stop], tree.lengths[start:stop])


# --------------------------------------------------------------------------------------------------------------
# The plan: every rank runs the same number of micro-batches.


def plan_micro_batches(trees: Sequence[PrefixTree], ranks: int, budget: int) -> list[list[list[PrefixTree]]]:
    """Distribute trees over as few, evenly filled micro-batches of at most `budget` tokens as possible.

    The plan is indexed by [rank][micro-batch][tree]; every rank computes the same. Only the last micro-batch of a rank
    may be empty. A micro-batch exceeds the budget if a single branch does.
    """
    parts = [part for tree in trees for part in split_tree(tree, budget)]
    while len(parts) < ranks and any(len(part.members) > 1 for part in parts):
        widest = max(parts, key=lambda part: (len(part.members) > 1, part.tokens))
        parts.remove(widest)
        members = len(widest.members)
        parts += [_part(widest, 0, members // 2), _part(widest, members // 2, members)]
    # What a branch that is too long has beyond the budget fills no other micro-batch.
    per_rank = max(1, math.ceil(sum(min(part.tokens, budget) for part in parts) / (budget * ranks)))
    while True:
        bins = _balanced(parts, per_rank * ranks)
        if all(len(content) < 2 or sum(tree.tokens for tree in content) <= budget for content in bins):
            return _dealt(bins, ranks)
        per_rank += 1


def _dealt(bins: Sequence[list[PrefixTree]], ranks: int) -> list[list[list[PrefixTree]]]:
    """Deal the micro-batches to ranks, those of about the same size at the same time, because ranks wait for another.

    Fewer than there are ranks are empty, and come last.
    """
    largest = sorted(bins, key=lambda content: -sum(tree.tokens for tree in content))
    return [largest[rank::ranks] for rank in range(ranks)]


def _balanced(parts: Sequence[PrefixTree], count: int) -> list[list[PrefixTree]]:
    bins: list[list[PrefixTree]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for part in sorted(parts, key=lambda part: -part.tokens):
        load, lightest = loads[0]
        bins[lightest].append(part)
        heapq.heapreplace(loads, (load + part.tokens, lightest))
    return bins

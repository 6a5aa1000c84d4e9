"""A batch on its way to the forward pass: sequences, trees that share a prompt, and who runs which in what order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentrl.algorithms.base import Advantages, Algorithm
from agentrl.errors import LearnerError
from agentrl.types import Group, TrainSequence


def train_sequences(groups: Sequence[Group], algorithm: Algorithm) -> list[TrainSequence]:
    """What the groups of one optimizer batch have to teach; sequences in which nothing was sampled are left out.

    Raises LearnerError for a sample without any sampled token: it would be counted and never trained.
    """
    for group in groups:
        if len(group.trajectories) < algorithm.needs.min_group_size:
            raise LearnerError(
                f"group {group.id} has {len(group.trajectories)} valid samples, {algorithm.name} needs "
                f"{algorithm.needs.min_group_size}. Filter such groups, or raise rollout.group_size."
            )
        for trajectory in group.trajectories:
            if not trajectory.action_tokens:
                raise LearnerError(f"sample {trajectory.sample} has no sampled token: there is nothing to train on")
    return list(_sequences(groups, algorithm.advantages(groups)))


def _sequences(groups: Sequence[Group], advantages: Advantages) -> Iterator[TrainSequence]:
    for group, of_group in zip(groups, advantages, strict=True):
        for trajectory, of_member in zip(group.trajectories, of_group, strict=True):
            for sequence, of_tokens in zip(trajectory.sequences, of_member, strict=True):
                mask = sequence.mask
                if any(mask):
                    yield TrainSequence(
                        trajectory.sample, sequence.ids, mask, sequence.logprobs, of_tokens, trajectory.temperature
                    )


def groups_with_signal(batch: Iterable[TrainSequence]) -> set[int]:
    """The groups in which any sequence has a signal."""
    return {sequence.sample.group for sequence in batch if sequence.has_signal}


def split_updates(batch: Sequence[TrainSequence], count: int) -> list[list[TrainSequence]]:
    """At most `count` parts of nearly equal size; groups stay together while there are enough of them."""
    groups = list({sequence.sample.group: None for sequence in batch})
    if len(groups) >= count:
        part = {group: place % count for place, group in enumerate(groups)}
        parts = [[s for s in batch if part[s.sample.group] == n] for n in range(count)]
    else:
        parts = [list(batch[n::count]) for n in range(count)]
    return [part for part in parts if part]


# --------------------------------------------------------------------------------------------------------------
# Trees: what the members of a group have in common goes through the model once.


@dataclass(frozen=True, slots=True)
class Tree:
    """Sequences whose first `prefix` tokens are the same context; `members` are their places in the batch."""

    prefix: int
    members: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that go through the model: the prefix once, every branch without its last token."""
        return self.prefix + sum(length - self.prefix for length in self.lengths)


def trees(batch: Sequence[TrainSequence], members: Sequence[int]) -> list[Tree]:
    """One tree for each group among `members`."""
    groups: dict[int, list[int]] = {}
    for place in members:
        groups.setdefault(batch[place].sample.group, []).append(place)
    return [_tree(batch, places) for places in groups.values()]


def _tree(batch: Sequence[TrainSequence], places: list[int]) -> Tree:
    prefix = min(batch[place].mask.index(1) for place in places)
    first = batch[places[0]].ids
    for place in places[1:]:
        ids = batch[place].ids
        if ids[:prefix] != first[:prefix]:
            prefix = next(n for n in range(prefix) if ids[n] != first[n])
    places.sort(key=lambda place: -len(batch[place].ids))
    return Tree(prefix, tuple(places), tuple(len(batch[place].ids) - 1 for place in places))


def cut(tree: Tree, budget: int) -> list[Tree]:
    """Parts of at most `budget` tokens, each with the prefix; a branch that alone is longer is a part."""
    parts: list[Tree] = []
    start = 0
    for stop in range(1, len(tree.members) + 1):
        part = Tree(tree.prefix, tree.members[start:stop], tree.lengths[start:stop])
        if stop - start > 1 and part.tokens > budget:
            parts.append(Tree(tree.prefix, tree.members[start : stop - 1], tree.lengths[start : stop - 1]))
            start = stop - 1
    return [*parts, Tree(tree.prefix, tree.members[start:], tree.lengths[start:])]


# --------------------------------------------------------------------------------------------------------------
# The plan: every rank makes the same number of forward passes.

MicroBatchPlan = list[list[list[Tree]]]


def plan(grown: Sequence[Tree], ranks: int, budget: int) -> MicroBatchPlan:
    """[rank][pass][tree]: as few passes of at most `budget` tokens as fit, and as even as they get.

    The same on every rank. A pass may be empty (fewer trees than ranks); one long branch may exceed the budget.
    """
    parts = [part for tree in grown for part in cut(tree, budget)]
    while len(parts) < ranks and any(len(part.members) > 1 for part in parts):
        widest = max(parts, key=lambda part: (len(part.members) > 1, part.tokens))
        parts.remove(widest)
        half = len(widest.members) // 2
        parts.append(Tree(widest.prefix, widest.members[:half], widest.lengths[:half]))
        parts.append(Tree(widest.prefix, widest.members[half:], widest.lengths[half:]))
    passes = max(1, math.ceil(sum(part.tokens for part in parts) / (budget * ranks)))
    while True:
        bins = _even(parts, passes * ranks)
        if all(len(part) < 2 or sum(tree.tokens for tree in part) <= budget for part in bins):
            return [bins[rank::ranks] for rank in range(ranks)]
        passes += 1


def _even(parts: Sequence[Tree], count: int) -> list[list[Tree]]:
    bins: list[list[Tree]] = [[] for _ in range(count)]
    loads = [0] * count
    for part in sorted(parts, key=lambda part: -part.tokens):
        lightest = loads.index(min(loads))
        bins[lightest].append(part)
        loads[lightest] += part.tokens
    return bins

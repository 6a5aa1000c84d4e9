"""Attention of ranks that share a micro-batch: each has all tokens of some heads (DeepSpeed-Ulysses, section 3.1).

Suffixes: R ranks of the group, N tokens of a rank, H heads, G heads of keys, D head size. Inside of attention a rank
has R N tokens, and H / R heads.
"""
# ruff: noqa: N803

from __future__ import annotations

import torch
from torch import Tensor

from agentrl.learner.attention.spans import Attention
from agentrl.learner.sequence_parallel import SequenceGroup


class Exchanged:
    """Attention over the spans of a whole micro-batch, of which each rank of the group has a contiguous share.

    One all-to-all turns shares of the tokens into shares of the heads, another turns them back. If there are fewer
    heads of keys than ranks, each is sent to all ranks whose queries read it.
    """

    def __init__(self, attention: Attention, group: SequenceGroup) -> None:
        self._attention, self._group = attention, group

    def __call__(
        self, query_NHD: Tensor, key_NGD: Tensor, value_NGD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return [N, H, D]."""
        size = self._group.size
        parts = [_by_rank(states, size) for states in (query_NHD, key_NGD, value_NGD)]
        received = self._group.exchange(torch.cat(parts, 2)).flatten(0, 1)
        states = received.split([part.shape[2] for part in parts], 1)
        attended = self._attention(*states, scale, window)
        return self._group.exchange(attended.unflatten(0, (size, -1))).transpose(0, 1).flatten(1, 2)


def _by_rank(states_NHD: Tensor, size: int) -> Tensor:
    """Return [R, N, heads of a rank, D]: the heads in equal shares, repeated if they are fewer than the ranks."""
    repeats = max(1, size // states_NHD.shape[1])
    return states_NHD.repeat_interleave(repeats, 1).unflatten(1, (size, -1)).transpose(0, 1)

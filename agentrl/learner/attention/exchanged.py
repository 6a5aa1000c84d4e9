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
        query, key, value = torch.split(received, [part.shape[2] for part in parts], 1)
        attended = self._attention(query, key, value, scale, window)
        results = self._group.exchange(attended.reshape(size, -1, *attended.shape[1:]))
        return results.transpose(0, 1).flatten(1, 2)


def _by_rank(states_NHD: Tensor, size: int) -> Tensor:
    """Return [R, N, heads of a rank, D]: the heads in equal shares, repeated if they are fewer than the ranks."""
    tokens, heads, width = states_NHD.shape
    repeated = states_NHD.repeat_interleave(size // heads, 1) if heads < size else states_NHD
    return repeated.reshape(tokens, size, -1, width).transpose(0, 1)

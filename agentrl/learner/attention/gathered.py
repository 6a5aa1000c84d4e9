"""Attention on GPUs: one call of flash attention for sequences of different lengths, over the keys of every span.

The keys of a span are gathered: those of its prefix, then its own. A prefix is copied once for each of its branches,
which costs little beside what the layers keep for every token. Suffixes: N tokens, H heads, G heads of keys, D head
size, K gathered keys, S spans.
"""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from agentrl.learner.attention.spans import Span
from agentrl.learner.memory import copied

Kernel = Callable[..., Any]
"""`torch.nn.attention.varlen.varlen_attn`, whose causal mask is aligned at the last query and the last key."""


class Gathered:
    """Attention over spans in bfloat16 or float16, on the device of `index`."""

    def __init__(self, spans: Sequence[Span], device: torch.device, kernel: Kernel = varlen_attn) -> None:
        self._kernel = kernel
        queries = [span.stop - span.start for span in spans]
        keys = [span.prefix_stop - span.prefix + length for span, length in zip(spans, queries, strict=True)]
        self._most_queries, self._most_keys = max(queries), max(keys)
        self._ends_of_queries, self._ends_of_keys = (_ends(lengths, device) for lengths in (queries, keys))
        has_prefix = any(span.prefix < span.prefix_stop for span in spans)
        self._index_K = copied(torch.cat([_keys(span) for span in spans]), device) if has_prefix else None

    def __call__(
        self, query_NHD: Tensor, key_NGD: Tensor, value_NGD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return [N, H, D]."""
        if self._index_K is not None:
            key_NGD, value_NGD = (states.index_select(0, self._index_K) for states in (key_NGD, value_NGD))
        attended_NHD: Tensor = self._kernel(
            query_NHD,
            key_NGD,
            value_NGD,
            self._ends_of_queries,
            self._ends_of_keys,
            self._most_queries,
            self._most_keys,
            scale=scale,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=query_NHD.shape[1] != key_NGD.shape[1],
        )
        return attended_NHD


def _keys(span: Span) -> Tensor:
    return torch.cat([torch.arange(span.prefix, span.prefix_stop), torch.arange(span.start, span.stop)])


def _ends(lengths: Sequence[int], device: torch.device) -> Tensor:
    """Return [S + 1]: where the tokens of each span begin, and where those of the last end."""
    return copied(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), device)

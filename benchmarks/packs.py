"""Packs of prefix trees, to measure attention without a model and a batch."""
# ruff: noqa: N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from agentrl.learner.attention.spans import Span

Trees = Sequence[tuple[int, Sequence[int]]]
"""(tokens of the prefix, tokens of each branch) of every tree."""


@dataclass(frozen=True)
class Heads:
    """Heads of queries, heads of keys, size of a head; by default those of SmolLM2-135M."""

    queries: int = 9
    keys: int = 3
    size: int = 64

    @classmethod
    def of(cls, text: str) -> Self:
        """Read `QUERIESxKEYSxSIZE`."""
        return cls(*map(int, text.split("x")))

    def __str__(self) -> str:
        return f"{self.queries}x{self.keys}x{self.size}"


@dataclass(frozen=True)
class Pack:
    """The spans of trees, one after the other, and the position of every token in its sequence."""

    spans: tuple[Span, ...]
    positions_N: Tensor

    @classmethod
    def of(cls, trees: Trees) -> Pack:
        """Return the pack of these trees."""
        spans: list[Span] = []
        positions: list[Tensor] = []
        end = 0
        for prefix, branches in trees:
            base, end = end, end + prefix
            if prefix:
                spans.append(Span(base, end, base, base))
                positions.append(torch.arange(prefix))
            for length in branches:
                spans.append(Span(end, end + length, base, base + prefix))
                positions.append(torch.arange(prefix, prefix + length))
                end += length
        return cls(tuple(spans), torch.cat(positions))

    def __len__(self) -> int:
        return len(self.positions_N)

    def sequences(self) -> list[Tensor]:
        """Return the tokens of every whole sequence: those of its prefix, then its own. A prefix alone is none."""
        prefixes = {(span.prefix, span.prefix_stop) for span in self.spans}
        return [
            torch.cat([torch.arange(span.prefix, span.prefix_stop), torch.arange(span.start, span.stop)])
            for span in self.spans
            if (span.start, span.stop) not in prefixes
        ]


def tree(tokens: int, branches: int = 16) -> Trees:
    """Return a tree of that many tokens: half are its prefix, and the longest branch is three times the shortest."""
    prefix = tokens // 2
    shares = [1 + 2 * index / max(1, branches - 1) for index in range(branches)]
    lengths = [int((tokens - prefix) * share / sum(shares)) for share in shares]
    return [(tokens - sum(lengths), lengths)]


def states(count: int, heads: Heads, seed: int = 0) -> list[Tensor]:
    """Return queries [N, H, D], keys and values [N, G, D], and a gradient of the output [N, H, D], in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    numbers = (heads.queries, heads.keys, heads.keys, heads.queries)
    return [torch.randn(count, number, heads.size, generator=generator).bfloat16() for number in numbers]

"""Spans: which tokens of a micro-batch attend to which."""
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, stop) of a micro-batch: they see the tokens [prefix, prefix_stop) and, causally, each other.

    The prefix of a tree is a span without a prefix. The spans of a micro-batch follow each other and cover it.
    """

    start: int
    stop: int
    prefix: int
    prefix_stop: int


class Attention(Protocol):
    """Attention over the spans of one micro-batch of N tokens, on one device."""

    def __call__(
        self, query_NHD: Tensor, key_NGD: Tensor, value_NGD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return [N, H, D], where H is a multiple of G; with a `window` a token sees that many, itself included."""

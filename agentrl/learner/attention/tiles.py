"""Attention one tile of queries at a time: a tile is some short spans, or a piece of a long one.

Time and memory grow with the keys that each query sees, not with the square of the micro-batch. Suffixes: N tokens, H
heads, G heads of keys, D head size, Q queries of a tile, K its keys.
"""
# ruff: noqa: N803, N806, N815

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from agentrl.learner.attention.spans import Span
from agentrl.learner.memory import copied
from agentrl.learner.products import bfloat16_products

TILE = 256
"""The most queries of a tile."""
KEYS = 2048
"""The most keys whose scores are in memory at once in the backward pass."""
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries that all see the tokens of `before`, and each of them the queries where its row of `own_QQ` is 0.

    `own_QQ` is -inf elsewhere.
    """

    queries: slice
    before: tuple[slice, ...]
    own_QQ: Tensor

    @property
    def runs(self) -> tuple[slice, ...]:
        """Where the keys are, in the order of the tokens."""
        return (*self.before, self.queries)

    def bias(self, positions_N: Tensor, window: int | None) -> Tensor:
        """Return [Q, K]: 0 where a query sees a key, -inf elsewhere."""
        bias_QK = functional.pad(self.own_QQ, (sum(run.stop - run.start for run in self.before), 0))
        if window is None:
            return bias_QK
        is_far_QK = positions_N[self.queries, None] - _joined(positions_N, self.runs) >= window
        return bias_QK.masked_fill(is_far_QK, -math.inf)


class Tiles:
    """Attention over spans, whose tokens have these positions in their sequences."""

    def __init__(self, spans: Sequence[Span], positions_N: Tensor) -> None:
        self.positions_N = positions_N
        self.tiles = tuple(_tiles(spans, positions_N.device))

    def __call__(
        self, query_NHD: Tensor, key_NGD: Tensor, value_NGD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return [N, H, D]."""
        with torch.autocast(query_NHD.device.type, enabled=False):
            out_NHD: Tensor = TiledAttention.apply(query_NHD, key_NGD, value_NGD, self, scale, window)  # type: ignore[no-untyped-call]
            return out_NHD


class TiledAttention(torch.autograd.Function):
    """softmax(scale Q K^T + bias) V, tile by tile; the gradients of keys and values are summed in float32.

    With P = exp(scale Q K^T + bias - logsumexp) and O = P V: dV = P^T dO, dS = P * (dO V^T - sum(dO * O)),
    dQ = scale dS K and dK = scale dS^T Q (FlashAttention-2, Dao 2023, section 3.1). On CPUs these plain products are
    faster than the backward pass of PyTorch's kernel (`python -m benchmarks.attention`).
    """

    @staticmethod
    def forward(
        ctx: Any, query_NHD: Tensor, key_NGD: Tensor, value_NGD: Tensor, tiles: Tiles, scale: float, window: int | None
    ) -> Tensor:
        """Return [N, H, D]."""
        out_NHD = torch.empty_like(query_NHD)
        logsumexp_NH = torch.empty(query_NHD.shape[:2], dtype=torch.float32, device=query_NHD.device)
        attend = _attend_on_cpu if query_NHD.device.type == "cpu" else _attend
        for tile in tiles.tiles:
            key_KGD, value_KGD = _joined(key_NGD, tile.runs), _joined(value_NGD, tile.runs)
            bias_QK = tile.bias(tiles.positions_N, window)
            out_QHD, logsumexp_QH = attend(query_NHD[tile.queries], key_KGD, value_KGD, bias_QK, scale)
            out_NHD[tile.queries], logsumexp_NH[tile.queries] = out_QHD, logsumexp_QH
        ctx.save_for_backward(query_NHD, key_NGD, value_NGD, out_NHD, logsumexp_NH)
        ctx.tiles, ctx.scale, ctx.window = tiles, scale, window
        return out_NHD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        query_NHD, key_NGD, value_NGD, out_NHD, logsumexp_NH = ctx.saved_tensors
        grad_query_NHD = torch.empty_like(query_NHD)
        sums = [torch.zeros_like(states, dtype=torch.float32) for states in (key_NGD, value_NGD)]
        for tile in ctx.tiles.tiles:
            own = _Queries(*(states[tile.queries] for states in (query_NHD, out_NHD, logsumexp_NH, grads[0])))
            key_KGD, value_KGD = _joined(key_NGD, tile.runs), _joined(value_NGD, tile.runs)
            bias_QK = tile.bias(ctx.tiles.positions_N, ctx.window)
            grad_query_NHD[tile.queries], *grads_KGD = _gradients(own, key_KGD, value_KGD, bias_QK, ctx.scale)
            lengths = [run.stop - run.start for run in tile.runs]
            for sum_NGD, grad_KGD in zip(sums, grads_KGD, strict=True):
                for run, part_KGD in zip(tile.runs, torch.split(grad_KGD, lengths), strict=True):
                    sum_NGD[run] += part_KGD
        return grad_query_NHD, sums[0].to(key_NGD.dtype), sums[1].to(value_NGD.dtype), None, None, None


# --------------------------------------------------------------------------------------------------------------
# One tile. R: queries of all heads that share a head of keys.


def _joined(states_N: Tensor, runs: Sequence[slice]) -> Tensor:
    return states_N[runs[0]] if len(runs) == 1 else torch.cat([states_N[run] for run in runs])


def _folded(states_QHD: Tensor, groups: int) -> Tensor:
    """Return [G, R, D]."""
    return states_QHD.transpose(0, 1).reshape(groups, -1, states_QHD.shape[-1])


def _unfolded(states_GRD: Tensor, queries: int) -> Tensor:
    """Return [Q, H, D]."""
    return states_GRD.reshape(-1, queries, states_GRD.shape[-1]).transpose(0, 1)


def _product(left_GRD: Tensor, right_KGD: Tensor) -> Tensor:
    """Return the float32 products [G, R, K]."""
    with nullcontext() if left_GRD.dtype == torch.float32 else bfloat16_products():
        return left_GRD.float() @ right_KGD.permute(1, 2, 0).float()


def _attend(
    query_QHD: Tensor, key_KGD: Tensor, value_KGD: Tensor, bias_QK: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return [Q, H, D], and the logsumexp of scores [Q, H]."""
    (queries, heads, _), groups = query_QHD.shape, key_KGD.shape[1]
    scores_GRK = _product(_folded(query_QHD, groups), key_KGD).mul_(scale)
    scores_GRK += bias_QK.repeat(heads // groups, 1)
    logsumexp_GR1 = scores_GRK.logsumexp(-1, keepdim=True)
    probs_GRK = scores_GRK.sub_(logsumexp_GR1).exp_().to(value_KGD.dtype)
    out_GRD = probs_GRK @ value_KGD.transpose(0, 1)
    return _unfolded(out_GRD, queries), _unfolded(logsumexp_GR1, queries).squeeze(2)


def _attend_on_cpu(
    query_QHD: Tensor, key_KGD: Tensor, value_KGD: Tensor, bias_QK: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the same by PyTorch's kernel for CPUs."""
    repeats = query_QHD.shape[1] // key_KGD.shape[1]
    key_KHD, value_KHD = (states.repeat_interleave(repeats, 1) for states in (key_KGD, value_KGD))
    batched = (states.transpose(0, 1)[None] for states in (query_QHD, key_KHD, value_KHD))
    out_HQD, logsumexp_HQ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *batched, attn_mask=bias_QK.to(query_QHD.dtype), scale=scale
    )
    return out_HQD[0].transpose(0, 1), logsumexp_HQ[0].T


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of a tile with what the forward pass made of them, and the gradient of that."""

    query_QHD: Tensor
    out_QHD: Tensor
    logsumexp_QH: Tensor
    grad_QHD: Tensor


def _gradients(
    own: _Queries, key_KGD: Tensor, value_KGD: Tensor, bias_QK: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries [Q, H, D], keys and values [K, G, D]."""
    (queries, heads, _), groups, dtype = own.query_QHD.shape, key_KGD.shape[1], key_KGD.dtype
    query_GRD, grad_GRD, out_GRD = (_folded(states, groups) for states in (own.query_QHD, own.grad_QHD, own.out_QHD))
    mean_GR1 = (grad_GRD.float() * out_GRD).sum(-1, keepdim=True)
    logsumexp_GR1 = _folded(own.logsumexp_QH[..., None], groups) * LOG2_E
    bias_RK = bias_QK.repeat(heads // groups, 1)
    grad_query_GRD = torch.zeros_like(query_GRD, dtype=torch.float32)
    grad_keys, grad_values = [], []
    parts = torch.split(key_KGD, KEYS), torch.split(value_KGD, KEYS), torch.split(bias_RK, KEYS, 1)
    for key, value, bias in zip(*parts, strict=True):
        # exp2, because the exp of MKL is slow at -inf.
        probs_GRK = _product(query_GRD, key).mul_(scale * LOG2_E).add_(bias).sub_(logsumexp_GR1).exp2_()
        score_grads_GRK = _product(grad_GRD, value).sub_(mean_GR1).mul_(probs_GRK)
        probs_GRK, score_grads_GRK = probs_GRK.to(dtype), score_grads_GRK.to(dtype)
        grad_query_GRD += score_grads_GRK @ key.transpose(0, 1)
        grad_keys.append((score_grads_GRK.transpose(1, 2) @ query_GRD).transpose(0, 1))
        grad_values.append((probs_GRK.transpose(1, 2) @ grad_GRD).transpose(0, 1))
    grad_query_QHD = _unfolded(grad_query_GRD.mul_(scale), queries)
    return grad_query_QHD, torch.cat(grad_keys).mul_(scale), torch.cat(grad_values)


# --------------------------------------------------------------------------------------------------------------
# The tiles of a micro-batch.


def _tiles(spans: Sequence[Span], device: torch.device) -> Iterator[Tile]:
    """Yield tiles of at most TILE queries: spans that fit together, or pieces of one that is longer."""
    group: list[Span] = []
    for span in spans:
        if group and not _fits(group, span):
            yield _tile(group, device)
            group = []
        if span.stop - span.start > TILE:
            yield from _pieces(span, device)
        else:
            group.append(span)
    if group:
        yield _tile(group, device)


def _fits(group: Sequence[Span], span: Span) -> bool:
    """Return whether a span sees what the others see before the tile: one prefix, or nothing."""
    start, first = group[0].start, group[0]
    if span.stop - start > TILE:
        return False
    return (span.prefix, span.prefix_stop) == (first.prefix, first.prefix_stop) or (
        _is_empty(first) and (_is_empty(span) or span.prefix >= start)
    )


def _is_empty(span: Span) -> bool:
    return span.prefix == span.prefix_stop


def _tile(group: Sequence[Span], device: torch.device) -> Tile:
    start, stop, first = group[0].start, group[-1].stop, group[0]
    seen_QQ = torch.zeros(stop - start, stop - start, dtype=torch.bool)
    for span in group:
        own, prefix = slice(span.start - start, span.stop - start), slice(span.prefix - start, span.prefix_stop - start)
        seen_QQ[own, own] = True
        if span.prefix >= start:
            seen_QQ[own, prefix] = True
    return Tile(slice(start, stop), _runs((first.prefix, first.prefix_stop)), _own_bias(seen_QQ, device))


def _pieces(span: Span, device: torch.device) -> Iterator[Tile]:
    for start in range(span.start, span.stop, TILE):
        stop = min(start + TILE, span.stop)
        before = _runs((span.prefix, span.prefix_stop), (span.start, start))
        seen_QQ = torch.ones(stop - start, stop - start, dtype=torch.bool)
        yield Tile(slice(start, stop), before, _own_bias(seen_QQ, device))


def _own_bias(seen_QQ: Tensor, device: torch.device) -> Tensor:
    return torch.zeros(seen_QQ.shape, device=device).masked_fill_(~copied(seen_QQ.tril(), device), -math.inf)


def _runs(*ends: tuple[int, int]) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in ends if start < stop)

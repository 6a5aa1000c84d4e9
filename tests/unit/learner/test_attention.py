"""Attention over prefix trees: every query sees its own sequence up to itself, on each device, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from agentrl.learner.attention import tiles
from agentrl.learner.attention.gathered import Gathered
from agentrl.learner.attention.spans import Attention, Span
from agentrl.learner.attention.tiles import Tiles
from agentrl.learner.micro_batch import attention_of

HEADS, GROUPS, SIZE = 4, 2, 8
Trees = list[tuple[int, list[int]]]
"""(tokens of the prefix, tokens of each branch) of every tree."""
TREES = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(1, 30), min_size=1, max_size=5)), min_size=1, max_size=4
)
WINDOWS = st.one_of(st.none(), st.integers(1, 20))


def layout(trees: Trees) -> tuple[list[Span], Tensor, Tensor]:
    """Spans, positions, and the mask [N, N] from the sequences alone: the tokens of a path, up to each of them."""
    spans, positions, paths, end = [], [], [], 0
    for prefix, branches in trees:
        base, end = end, end + prefix
        if prefix:
            spans.append(Span(base, end, base, base))
            positions += range(prefix)
            paths.append([*range(base, end)])
        for length in branches:
            spans.append(Span(end, end + length, base, base + prefix))
            positions += range(prefix, prefix + length)
            paths.append([*range(base, base + prefix), *range(end, end + length)])
            end += length
    mask = torch.zeros(end, end, dtype=torch.bool)
    for path in paths:
        for place, token in enumerate(path):
            mask[token, path[: place + 1]] = True
    return spans, torch.tensor(positions), mask


def states(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """Queries, keys, values, and the gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(count, HEADS, SIZE), (count, GROUPS, SIZE), (count, GROUPS, SIZE), (count, HEADS, SIZE)]
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [*(one.requires_grad_() for one in made[:3]), made[3]]


def outcome(attention: Attention, inputs: list[Tensor], window: int | None = None) -> list[Tensor]:
    """The output and the gradients of queries, keys and values."""
    *given, grad = inputs
    out = attention(*given, 0.3, window)
    return [out.detach(), *torch.autograd.grad(out, given, grad)]


def dense(mask: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The same from the whole matrix of scores."""

    def attention(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        key, value = (one.repeat_interleave(HEADS // GROUPS, 1) for one in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * scale
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -math.inf).softmax(-1), value)

    return outcome(attention, inputs)


def far(positions: Tensor, window: int | None) -> Tensor:
    distance = positions[:, None] - positions[None, :]
    return torch.zeros_like(distance, dtype=torch.bool) if window is None else distance >= window


def flash(
    query: Tensor, key: Tensor, value: Tensor, ends_q: Tensor, ends_k: Tensor, most_q: int, most_k: int, *,
    scale: float, window_size: tuple[int, int], enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """What `varlen_attn` promises: for each sequence, queries and keys aligned at their ends, within a window."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    assert (ends_q.dtype, ends_k.dtype) == (torch.int32, torch.int32)
    assert (int(ends_q.diff().max()), int(ends_k.diff().max())) == (most_q, most_k)
    left, right = window_size
    rows = []
    for q0, q1, k0, k1 in zip(ends_q[:-1], ends_q[1:], ends_k[:-1], ends_k[1:], strict=True):
        ahead = torch.arange(k1 - k0)[None, :] - torch.arange(k1 - k0 - (q1 - q0), k1 - k0)[:, None]
        mask = (ahead <= right) & ((ahead >= -left) if left >= 0 else torch.tensor(True))
        repeats = query.shape[1] // key.shape[1]
        keys, values = (one[k0:k1].repeat_interleave(repeats, 1) for one in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[q0:q1], keys) * scale
        rows.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -math.inf).softmax(-1), values))
    return torch.cat(rows)


@given(TREES, WINDOWS, st.sampled_from([1, 7, 16, 256]), st.sampled_from([3, 2048]))
def test_tiles_are_dense_attention_under_the_mask_of_the_sequences(
    trees: Trees, window: int | None, tile: int, keys: int
) -> None:
    spans, positions, mask = layout(trees)
    inputs = states(len(positions))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        patch.setattr(tiles, "KEYS", keys)
        found = outcome(Tiles(spans, positions), inputs, window)
        patch.setattr(tiles, "_attend_on_cpu", tiles._attend)
        elsewhere = outcome(Tiles(spans, positions), inputs, window)
    for one, other, expected in zip(found, elsewhere, dense(mask & ~far(positions, window), inputs), strict=True):
        torch.testing.assert_close(one, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(other, expected, atol=1e-5, rtol=1e-4)


@given(TREES, WINDOWS)
def test_gathered_keys_are_dense_attention_under_the_same_mask(trees: Trees, window: int | None) -> None:
    spans, positions, mask = layout(trees)
    inputs = states(len(positions))

    def grouped(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **keys: Any) -> Tensor:
        assert (query.shape[1], key.shape[1], value.shape[1]) == (HEADS, GROUPS, GROUPS), "keys are not expanded"
        return flash(query, key, value, *rest, **keys)

    found = outcome(Gathered(spans, torch.device("cpu"), grouped), inputs, window)
    for one, expected in zip(found, dense(mask & ~far(positions, window), inputs), strict=True):
        torch.testing.assert_close(one, expected, atol=1e-5, rtol=1e-4)


def test_in_bfloat16_the_gradients_of_tiles_are_as_exact_as_those_of_pytorch() -> None:
    spans, positions, mask = layout([(40, [100] * 16), (500, [300, 20, 7])])
    inputs = states(len(positions), torch.bfloat16)
    exact = dense(mask, [one.detach().double().requires_grad_() for one in inputs[:3]] + [inputs[3].double()])

    def sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        rows = (one.transpose(0, 1)[None] for one in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(*rows, mask, scale=scale, enable_gqa=True)
        return out[0].transpose(0, 1)

    found, theirs = outcome(Tiles(spans, positions), inputs), outcome(sdpa, inputs)
    for one, other, expected in zip(found, theirs, exact, strict=True):
        assert (one.double() - expected).norm() <= 1.25 * (other.double() - expected).norm()


def test_a_prefix_is_no_key_of_another_tree_and_no_branch_of_its_sister() -> None:
    """The mask itself is tested: one value is changed, and only the tokens that see it notice."""
    spans, positions, mask = layout([(3, [4, 5]), (2, [6])])
    query, key, value, _ = states(len(positions))
    for attention in (Tiles(spans, positions), Gathered(spans, torch.device("cpu"), flash)):
        before = attention(query, key, value, 0.3, None)
        for token in range(len(positions)):
            changed = value.detach().clone()
            changed[token] += 1
            noticed = (attention(query, key, changed, 0.3, None) != before).flatten(1).any(1)
            assert torch.equal(noticed, mask[:, token])


def test_flash_attention_of_pytorch_takes_what_is_gathered() -> None:
    """The real operator with its own checks and shapes, on tensors without data."""
    spans, positions, _ = layout([(3, [4, 5]), (0, [6])])
    meta = torch.device("meta")
    inputs = [one.detach().to(meta, torch.bfloat16) for one in states(len(positions))]
    *given, grad = inputs
    for one in given:
        one.requires_grad_()
    found = outcome(Gathered(spans, meta), [*given, grad], 5)
    assert [one.shape for one in found] == [given[0].shape, *(one.shape for one in given)]


@pytest.mark.parametrize(
    ("device", "dtype", "kind"),
    [
        ("cpu", torch.float32, Tiles),
        ("cpu", torch.bfloat16, Tiles),
        ("cuda", torch.float32, Tiles),
        ("cuda", torch.bfloat16, Gathered),
    ],
)
def test_the_attention_is_chosen_by_device_and_type(device: str, dtype: torch.dtype, kind: type) -> None:
    spans, positions, _ = layout([(3, [4, 5])])
    assert type(attention_of(spans, positions, device, dtype)) is kind


def test_memory_grows_with_the_tokens_and_not_with_their_square() -> None:
    """A sequence of 32,768 tokens has biases of 32 MiB, where a dense one would have 4 GiB."""
    made = Tiles([Span(0, 32768, 0, 0)], torch.arange(32768))
    assert sum(tile.own_QQ.nbytes for tile in made.tiles) <= 32 << 20


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that PyTorch's allocator for CPUs has handed out at once, within its kernels too."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    assert recorded.profiler is not None
    events = recorded.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(nbytes for _, nbytes in changes))


def growth(work: Callable[[int], Callable[[], object]], tokens: int) -> float:
    """The peak of so many tokens, divided by that of a quarter of them; inputs are not counted."""
    return peak_bytes(work(tokens)) / peak_bytes(work(tokens // 4))


@pytest.mark.parametrize("branches", [0, 16], ids=["a sequence", "a tree"])
def test_the_peak_of_a_forward_and_a_backward_pass_grows_with_the_tokens(branches: int) -> None:
    def attended(tokens: int) -> Callable[[], object]:
        start = tokens // 2 if branches else tokens
        starts = torch.arange(start, tokens, (tokens - start) // branches).tolist() if branches else []
        spans = [Span(0, start, 0, 0), *(Span(one, one + start // branches, 0, start) for one in starts)]
        positions = torch.cat([torch.arange(span.stop - span.start) + span.prefix_stop for span in spans])
        attention, inputs = Tiles(spans, positions), states(tokens)
        return lambda: outcome(attention, inputs)

    assert growth(attended, 8192) <= 4


def test_the_peak_of_dense_attention_grows_with_the_square_of_the_tokens() -> None:
    """So the measure above tells one from the other."""

    def attended(tokens: int) -> Callable[[], object]:
        mask, inputs = torch.ones(tokens, tokens, dtype=torch.bool).tril(), states(tokens)
        return lambda: dense(mask, inputs)

    assert growth(attended, 2048) > 12


def test_biases_come_to_a_gpu_as_the_rest_of_a_micro_batch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host does not wait for them."""
    made: list[torch.Size] = []

    def copied(tensor: Tensor, device: torch.device) -> Tensor:
        made.append(tensor.shape)
        return tensor.to(device)

    monkeypatch.setattr(tiles, "copied", copied)
    attention = Tiles([Span(0, 300, 0, 0), Span(300, 310, 300, 300)], torch.arange(310, device="meta"))
    assert made == [tile.own_QQ.shape for tile in attention.tiles]
    assert len(made) == 3

"""One digest for a tensor's bytes: any change is seen."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.weights.digest import tensor_digest

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
SHAPES = [(), (1,), (3,), (5, 7), (8192,), (8193, 8), (300, 512), (131, 1024)]


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 50
    return values.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_bytes_have_equal_digests_wherever_they_lie(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    original = tensor(shape, dtype)
    shifted = torch.empty(original.numel() + 1, dtype=dtype)[1:].view(shape).copy_(original)
    assert tensor_digest(original) == tensor_digest(original.clone()) == tensor_digest(shifted)


def test_the_definition_does_not_drift() -> None:
    assert tensor_digest(torch.arange(100_003, dtype=torch.int32)) == "9bba56c2348e34e8"


@pytest.mark.parametrize("shape", [(5, 7), (8192,), (300, 512)])
def test_each_fault_changes_the_digest(shape: tuple[int, ...]) -> None:
    original = tensor(shape)
    flat = original.flatten()
    swapped = flat.clone()
    swapped[0], swapped[-1] = flat[-1], flat[0]
    zeroed = flat.clone()
    zeroed[len(flat) // 2 :] = 0
    stale = tensor(shape, seed=1)
    faults = [swapped, zeroed, stale, flat.flip(0), flat.roll(1), flat.roll(4), torch.zeros_like(flat), flat[:-1]]
    digests = {tensor_digest(fault) for fault in faults} | {tensor_digest(original)}
    assert len(digests) == len(faults) + 1


def test_padding_with_zeros_is_seen() -> None:
    assert len({tensor_digest(torch.zeros(length, dtype=torch.uint8)) for length in range(40)}) == 40


def test_rows_that_change_places_are_seen() -> None:
    original = tensor((64, 32768))
    assert tensor_digest(original) != tensor_digest(original[torch.randperm(64)])
    pair = original.clone()
    pair[[10, 20]] = original[[20, 10]]
    assert tensor_digest(pair) != tensor_digest(original)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_every_single_byte_counts(data: bytes, draw: st.DataObject) -> None:
    index = draw.draw(st.integers(0, len(data) - 1))
    bit = draw.draw(st.integers(0, 7))
    changed = bytearray(data)
    changed[index] ^= 1 << bit
    first, second = (torch.tensor(list(values), dtype=torch.uint8) for values in (data, changed))
    assert tensor_digest(first) != tensor_digest(second)

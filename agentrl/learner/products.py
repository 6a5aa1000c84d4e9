"""Matrix products of bfloat16 factors on a CPU, whose results are not rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let float32 matrix products on a CPU use its bfloat16 instructions, if it has them.

    Factors that are bfloat16 already lose nothing, and sums are float32.
    """
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before

"""The most memory that a block takes: of the GPU, or of this process on a CPU."""

from __future__ import annotations

from types import TracebackType

import torch

from benchmarks.memory import forget_peak, peak_bytes, resident_bytes

MIB = 1 << 20


def held(device: str) -> int:
    """Return the bytes that tensors of this process take on the device; on a CPU all that is resident."""
    return torch.cuda.memory_allocated() if device == "cuda" else resident_bytes()


class Peak:
    """`nbytes`, after the block: the most that it took beyond what was held before."""

    def __init__(self, device: str) -> None:
        self._device, self._before, self.nbytes = device, 0, 0

    def __enter__(self) -> Peak:
        if self._device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            forget_peak()
        self._before = held(self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()
        self.nbytes = (torch.cuda.max_memory_allocated() if self._device == "cuda" else peak_bytes()) - self._before

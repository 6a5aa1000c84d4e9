"""How a learner's process holds CPU memory, and copies it to its device."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Options of mallopt(3)."""


def keep_freed_memory() -> None:
    """Let this process keep the memory that tensors free, for the tensors that follow.

    By default glibc returns what is above 32 MiB to the kernel, which clears every page before the next tensor gets it:
    about a quarter of an update on a CPU (docs/performance.md). Another C library stays as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on a device. A GPU copies it beside what it computes: the host waits for neither."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

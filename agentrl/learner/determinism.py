"""Updates that give the same weights when they are repeated, on GPUs too: what `agentrl replay` rests on."""

from __future__ import annotations

import os
from typing import Any

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
REFUSED = "does not have a deterministic implementation"
"""Part of what torch says of an operation that has none."""


def repeat_exactly() -> None:
    """Let torch compute by operations on GPUs whose results do not depend on the order in which threads add.

    By default the gradients of flash attention and of gathered keys are added up atomically, and two runs of one step
    differ in the last digits. An operation without such an implementation raises RuntimeError. cuBLAS reads its
    variable when it makes its first handle, so call this before anything is multiplied.
    """
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    memory: Any = torch.utils.deterministic
    memory.fill_uninitialized_memory = False  # nothing here reads what it has not written


def advice(error: RuntimeError) -> str:
    """Return what to do about an error of a learner, "" if it is not about determinism."""
    if REFUSED not in str(error):
        return ""
    return ". Set learner.deterministic to false: the run trains, but cannot be replayed"

"""Digits that come out the same when a step is repeated, on GPUs too: what `agentrl replay` rests on."""

from __future__ import annotations

import os
from typing import Any

import torch

from agentrl.learner.spec import LearnerSpec

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
REFUSED = "does not have a deterministic implementation"
"""Part of what torch says of an operation that has none."""


def repeat_exactly(spec: LearnerSpec) -> None:
    """On a GPU, unless `learner.deterministic` is false, choose operations that add in one order.

    By default threads add the gradients of keys that branches share, and those of flash attention over long sequences,
    in any order, and two runs of one step differ in the last digits. An operation without such an implementation raises
    RuntimeError. cuBLAS reads its variable when it makes its first handle, so call this before anything is multiplied.
    """
    if spec.device != "cuda" or not spec.learner.deterministic:
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    memory: Any = torch.utils.deterministic
    memory.fill_uninitialized_memory = False  # nothing here reads what it has not written


def advice(error: Exception) -> str:
    """Return what to do about an error of a learner, "" if it is not about determinism."""
    if REFUSED not in str(error):
        return ""
    return ". Set learner.deterministic to false: the run trains, but these steps cannot be replayed"

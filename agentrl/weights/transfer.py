"""Which transfer brings weights from the learner to the engines."""

from __future__ import annotations

from typing import Literal

from agentrl.errors import ConfigError

Transfer = Literal["shm", "ipc", "nccl"]


def choose_transfer(device: str, *, is_colocated: bool) -> Transfer:
    """shm without GPUs; on GPUs ipc where learner and engine share them, else nccl."""
    if device == "cpu":
        return "shm"
    if device == "cuda":
        return "ipc" if is_colocated else "nccl"
    raise ConfigError(f"no weight transfer for device {device!r}; use cpu or cuda")

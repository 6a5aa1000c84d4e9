"""GPU memory of models that wait: frozen weights and optimizer state move to pinned CPU memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from agentrl.learner.zero import optimizer_state

MOVED = ("hp_params", "optim_states")
"""What DeepSpeed moves: its copy of the weights, and the optimizer's moments."""


def to_host(tensors: Iterable[Tensor]) -> None:
    """Move tensors, in place, to CPU memory, and leave their GPU memory to other processes."""
    for tensor in tensors:
        host = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        tensor.data = host.copy_(tensor.data)
    torch.cuda.empty_cache()


@contextmanager
def lent(tensors: Sequence[Tensor], device: torch.device) -> Iterator[None]:
    """Let a block read tensors in CPU memory on the device. What it writes to them is lost."""
    hosts = [tensor.data for tensor in tensors]
    for tensor, host in zip(tensors, hosts, strict=True):
        tensor.data = host.to(device, non_blocking=True, copy=True)
    try:
        yield
    finally:
        for tensor, host in zip(tensors, hosts, strict=True):
            tensor.data = host
        torch.cuda.empty_cache()


class OptimizerMemory:
    """The optimizer state of a DeepSpeed engine, in CPU memory except inside `on_device`.

    At ZeRO stages 1 and 2 DeepSpeed moves it, with its copy of the weights. At stage 3 it would refuse every optimizer
    but its own; its copy stays where it is.
    """

    def __init__(self, engine: Any, stage: int, device: torch.device) -> None:
        self._engine, self._stage, self._device = engine, stage, device
        self._offload()

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Hold the state on the device, where the block takes steps or loads it."""
        self._reload()
        try:
            yield
        finally:
            self._offload()

    def _offload(self) -> None:
        if self._stage in (1, 2):
            self._engine.offload_states(include=MOVED)
            torch.cuda.empty_cache()
        else:
            to_host(self._moments())

    def _reload(self) -> None:
        if self._stage in (1, 2):
            self._engine.reload_states()
        else:
            for tensor in self._moments():
                tensor.data = tensor.data.to(self._device, non_blocking=True)

    def _moments(self) -> list[Tensor]:
        """Return the optimizer's tensors, without its step counts, which stay where it put them."""
        values = (value for state in optimizer_state(self._engine).values() for value in state.values())
        return list({id(value): value for value in values if isinstance(value, Tensor) and value.dim()}.values())

"""Exponential moving average (EMA) of the trained parameters: each rank averages its own shard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional


class Average:
    """The EMA of parameters, from their values at the start: mean <- decay * mean + (1 - decay) * parameter."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float, rank: int = 0, world_size: int = 1) -> None:
        self._decay, self._rank, self._world_size = decay, rank, world_size
        self._means: dict[Tensor, Tensor] = {parameter: self._shard(parameter).clone() for parameter in parameters}

    def update(self) -> None:
        """Move the means; call after each optimizer step."""
        for parameter, mean in self._means.items():
            mean.lerp_(self._shard(parameter), 1 - self._decay)

    def full(self, parameter: Tensor) -> Tensor | None:
        """Gather the mean of a parameter, None for a tensor that is not averaged; collective over the ranks."""
        mean = self._means.get(parameter)
        if mean is None:
            return None
        shards = [mean]
        if self._world_size > 1:
            shards = [torch.empty_like(mean) for _ in range(self._world_size)]
            dist.all_gather(shards, mean)
        shape = getattr(parameter, "ds_shape", parameter.shape)
        return torch.cat(shards)[: shape.numel()].view(shape)

    def save(self, folder: Path) -> None:
        """Write this rank's shard."""
        torch.save(list(self._means.values()), self._file(folder))

    def load(self, folder: Path) -> None:
        """Restore this rank's shard."""
        saved = torch.load(self._file(folder), weights_only=True)
        for mean, value in zip(self._means.values(), saved, strict=True):
            mean.copy_(value)

    def _file(self, folder: Path) -> Path:
        return folder / f"ema-{self._rank}.pt"

    def _shard(self, parameter: Tensor) -> Tensor:
        """Return ZeRO 3's own shard; at other stages an equal part of the flattened parameter, padded with 0."""
        if hasattr(parameter, "ds_tensor"):
            shard: Tensor = parameter.ds_tensor.detach()
            return shard
        size = -(-parameter.numel() // self._world_size)
        part = parameter.detach().flatten()[self._rank * size : (self._rank + 1) * size]
        return functional.pad(part, (0, size - len(part)))

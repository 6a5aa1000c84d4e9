"""Exponential moving average (EMA) of the trained parameters: each rank averages its own shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional

from agentrl.learner.shards import Shard
from agentrl.learner.tensor_parallel import cut_of, parts_of_ranks


class Average:
    """The EMA of parameters, from their values at the start: mean <- decay * mean + (1 - decay) * parameter.

    This is the rank `rank` of the `size` of a group that divide it among each other; None: all ranks.
    """

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        decay: float,
        rank: int = 0,
        size: int = 1,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._named, self._decay, self._rank, self._size, self._group = named, decay, rank, size, group
        self._means: dict[Tensor, Tensor] = {one: self._shard(one).clone() for one in named.values()}

    def update(self) -> None:
        """Move the means; call after each optimizer step."""
        for parameter, mean in self._means.items():
            mean.lerp_(self._shard(parameter), 1 - self._decay)

    def full(self, parameter: Tensor) -> Tensor | None:
        """Gather the mean of a parameter, None for a tensor that is not averaged; collective over the ranks."""
        mean = self._means.get(parameter)
        if mean is None:
            return None
        shards = [mean] if self._size == 1 else parts_of_ranks(mean, self._size, self._group)
        shape = getattr(parameter, "ds_shape", parameter.shape)
        own, cut = torch.cat(shards)[: shape.numel()].view(shape), cut_of(parameter)
        return own if cut is None else cut.whole(own)

    def shards(self) -> Iterator[Shard]:
        """Yield this rank's part of each mean, without padding."""
        for name, parameter in self._named.items():
            mean = self._means[parameter]
            start = self._rank * len(mean)
            length = getattr(parameter, "ds_numel", parameter.numel()) - start
            yield Shard(name, start, max(0, min(length, len(mean))), mean, cut=cut_of(parameter))

    def _shard(self, parameter: Tensor) -> Tensor:
        """Return ZeRO 3's own shard; at other stages an equal part of the flattened parameter, padded with 0."""
        if hasattr(parameter, "ds_tensor"):
            shard: Tensor = parameter.ds_tensor.detach()
            return shard
        size = -(-parameter.numel() // self._size)
        part = parameter.detach().flatten()[self._rank * size : (self._rank + 1) * size]
        return functional.pad(part, (0, size - len(part)))

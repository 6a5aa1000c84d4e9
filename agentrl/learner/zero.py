"""How DeepSpeed divides the trained parameters and the state of their optimizer among the ranks, by ZeRO stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch import distributed as dist

from agentrl.learner.shards import OptimizerState, Shard
from agentrl.learner.tensor_parallel import cut_of


def optimizer_state(engine: Any) -> OptimizerState:
    """Return the state of PyTorch's optimizer."""
    optimizer = engine.optimizer
    state: OptimizerState = getattr(optimizer, "optimizer", optimizer).state  # ZeRO's own is around that of PyTorch
    return state


def shards(engine: Any, stage: int, trained: Mapping[str, nn.Parameter]) -> Iterator[Shard]:
    """Yield what this rank's optimizer updates of each parameter: all of it at stage 0."""
    if stage == 0:
        return (Shard(name, 0, one.numel(), one, cut=cut_of(one)) for name, one in trained.items())
    names: dict[Tensor, str] = {parameter: name for name, parameter in trained.items()}
    if stage == 3:
        return _partitioned(engine.optimizer, names)
    return _flattened(engine.optimizer, names, dist.get_rank(engine.data_parallel_group))


def _flattened(optimizer: Any, names: Mapping[Tensor, str], rank: int) -> Iterator[Shard]:
    """Yield the shards of stages 1 and 2: each rank has an equal part of all parameters, one after the other."""
    parts, groups = optimizer.single_partition_of_fp32_groups, optimizer.round_robin_bit16_groups
    for part, parameters, offsets in zip(parts, groups, optimizer.round_robin_bit16_offsets, strict=True):
        first = rank * len(part)
        for parameter, offset in zip(parameters, offsets, strict=True):
            start, end = max(first - offset, 0), min(first + len(part) - offset, parameter.numel())
            if start < end:
                at = offset + start - first
                yield Shard(names[parameter], start, end - start, part, at, cut_of(parameter))


def _partitioned(optimizer: Any, names: Mapping[Any, str]) -> Iterator[Shard]:
    """Yield the shards of stage 3: each rank has an equal part of every parameter, the last one padded."""
    for parameter, name in names.items():
        group, offset, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
        start = dist.get_rank() * size
        length = max(0, min(size, parameter.ds_numel - start))
        yield Shard(name, start, length, optimizer.fp32_partitioned_groups_flat[group], offset)


def spread(engine: Any, stage: int) -> None:
    """Copy the weights that the optimizers of all ranks update to those that compute."""
    optimizer = engine.optimizer
    if stage in (1, 2):
        optimizer.update_lp_params()
    elif stage == 3:
        optimizer.checkpoint_event_prologue()  # releases the small parameters, which ZeRO keeps whole
        copies = zip(optimizer.fp16_partitioned_groups_flat, optimizer.fp32_partitioned_groups_flat, strict=True)
        for computed, updated in copies:
            computed.data.copy_(updated.data)
        optimizer.checkpoint_event_epilogue()  # gathers them again

"""The EMA of the policy: each rank averages its own shard."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist

from agentrl.learner.average import Average
from agentrl.learner.shards import AVERAGE, StateFiles, write


def values() -> list[Tensor]:
    return [torch.arange(7.0).view(7, 1) * step for step in range(4)]


def moved(average: Average, parameter: nn.Parameter, to: list[Tensor]) -> None:
    for value in to:
        parameter.data.copy_(value)
        average.update()


def test_the_mean_is_that_of_the_formula_from_the_start():
    start, *rest = values()
    parameter = nn.Parameter(start + 1)
    average, mean = Average({"p": parameter}, 0.9), start + 1
    moved(average, parameter, rest)
    for value in rest:
        mean = 0.9 * mean + 0.1 * value
    torch.testing.assert_close(average.full(parameter), mean)
    assert average.full(nn.Parameter(start)) is None


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_shards_of_all_ranks_are_the_whole(world_size: int):
    start, *rest = values()
    parameter = nn.Parameter(start.clone())
    whole = Average({"p": parameter}, 0.9)
    shards = [Average({"p": parameter}, 0.9, rank, world_size) for rank in range(world_size)]
    for value in rest:
        parameter.data.copy_(value)
        for average in (whole, *shards):
            average.update()
    kept = torch.cat([next(iter(average._means.values())) for average in shards])
    assert torch.equal(kept[:7].view(7, 1), whole.full(parameter))


@pytest.mark.parametrize(("saving", "loading"), [(1, 1), (2, 3), (8, 1)])
def test_a_saved_average_goes_on_exactly_on_any_number_of_ranks(tmp_path: Path, saving: int, loading: int):
    start, *rest = values()
    one, other = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    straight = [Average({"p": one}, 0.9, rank, saving) for rank in range(saving)]
    resumed = [Average({"p": other}, 0.9, rank, loading) for rank in range(loading)]
    one.data.copy_(rest[0])
    for rank, average in enumerate(straight):
        average.update()
        write((pair for shard in average.shards() for pair in shard.named(AVERAGE, shard.tensor)), tmp_path, rank)
    files = StateFiles(tmp_path)
    for average in resumed:
        for shard in average.shards():
            files.read(shard, AVERAGE, shard.tensor)
    for value in rest[1:]:
        one.data.copy_(value)
        other.data.copy_(value)
        for average in (*straight, *resumed):
            average.update()
    assert torch.equal(whole(straight), whole(resumed))


def whole(averages: list[Average]) -> Tensor:
    return torch.cat([shard.of(shard.tensor) for average in averages for shard in average.shards()])


def test_means_that_wait_in_cpu_memory_are_gathered_on_the_gpu(monkeypatch: pytest.MonkeyPatch):
    """NCCL gathers no tensor in CPU memory. A copy stands for the one on the GPU."""
    parameter, on_gpu = nn.Parameter(values()[1].clone()), list[Tensor]()
    shards = [Average({"p": parameter}, 0.9, rank, 2) for rank in range(2)]

    def cuda(tensor: Tensor) -> Tensor:
        on_gpu.append(tensor.clone())
        return on_gpu[-1]

    def all_gather(parts: list[Tensor], own: Tensor, group: object) -> None:
        assert own is on_gpu[-1]
        for part, average in zip(parts, shards, strict=True):
            part.copy_(next(iter(average._means.values())))

    monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
    monkeypatch.setattr(dist, "all_gather", all_gather)
    monkeypatch.setattr(Tensor, "cuda", cuda)
    torch.testing.assert_close(shards[0].full(parameter), parameter.detach())

"""The EMA of the policy: each rank averages its own shard."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from agentrl.learner.average import Average


def values() -> list[Tensor]:
    return [torch.arange(7.0).view(7, 1) * step for step in range(4)]


def moved(average: Average, parameter: nn.Parameter, to: list[Tensor]) -> None:
    for value in to:
        parameter.data.copy_(value)
        average.update()


def test_the_mean_is_that_of_the_formula_from_the_start():
    start, *rest = values()
    parameter = nn.Parameter(start + 1)
    average, mean = Average([parameter], 0.9), start + 1
    moved(average, parameter, rest)
    for value in rest:
        mean = 0.9 * mean + 0.1 * value
    torch.testing.assert_close(average.full(parameter), mean)
    assert average.full(nn.Parameter(start)) is None


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_shards_of_all_ranks_are_the_whole(world_size: int):
    start, *rest = values()
    parameter = nn.Parameter(start.clone())
    whole = Average([parameter], 0.9)
    shards = [Average([parameter], 0.9, rank, world_size) for rank in range(world_size)]
    for value in rest:
        parameter.data.copy_(value)
        for average in (whole, *shards):
            average.update()
    kept = torch.cat([next(iter(average._means.values())) for average in shards])
    assert torch.equal(kept[:7].view(7, 1), whole.full(parameter))


def test_a_saved_average_goes_on_exactly(tmp_path: Path):
    start, *rest = values()
    one, other = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    straight, resumed = Average([one], 0.9), Average([other], 0.9)
    moved(straight, one, rest[:1])
    straight.save(tmp_path)
    resumed.load(tmp_path)
    moved(straight, one, rest[1:])
    moved(resumed, other, rest[1:])
    assert torch.equal(straight.full(one), resumed.full(other))

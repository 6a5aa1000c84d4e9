"""The training state in files: written in shards by some ranks, read in other shards by others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.optim import AdamW

from agentrl.errors import LearnerError
from agentrl.learner.checkpoint import CRITIC, STATE
from agentrl.learner.shards import Shard, StateFiles, named_state, refuse_incomplete, write

SIZES = {"a": 7, "b": 4, "c": 1}


def stepped() -> tuple[list[Shard], AdamW]:
    """Three parameters with a state of AdamW, each whole."""
    torch.manual_seed(0)
    parameters = {name: torch.nn.Parameter(torch.randn(size)) for name, size in SIZES.items()}
    optimizer = AdamW(parameters.values(), lr=0.1)
    for _ in range(3):
        for parameter in parameters.values():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return [Shard(name, 0, len(parameter), parameter) for name, parameter in parameters.items()], optimizer


def saved(folder: Path, ranks: int) -> tuple[list[Shard], AdamW]:
    shards, optimizer = stepped()
    for rank in range(ranks):
        write(named_state((shard.share(rank, ranks) for shard in shards), optimizer.state), folder, rank)
    return shards, optimizer


@pytest.mark.parametrize("ranks", [1, 2, 5, 9])
def test_shards_of_any_number_of_ranks_are_read_into_tensors_that_hold_parts_of_several(tmp_path: Path, ranks: int):
    shards, optimizer = saved(tmp_path, ranks)
    flat = torch.full((8,), -1.0)  # the last of b, c, and the last four of a, in an order of its own
    parts = [Shard("b", 2, 2, flat, 0), Shard("c", 0, 1, flat, 2), Shard("a", 3, 4, flat, 3)]
    resumed = AdamW([flat], lr=0.1)
    files = StateFiles(tmp_path)
    files.check(SIZES)
    files.restore(parts, resumed.state)
    wholes = {shard.name: shard.tensor.detach() for shard in shards}
    state = {shard.name: optimizer.state[shard.tensor] for shard in shards}
    assert flat.tolist() == [*wholes["b"][2:], *wholes["c"], *wholes["a"][3:], -1]
    for kind in ("exp_avg", "exp_avg_sq"):
        a, b, c = (state[name][kind] for name in SIZES)
        assert resumed.state[flat][kind].tolist() == [*b[2:], *c, *a[3:], 0]
    assert resumed.state[flat]["step"] == 3


def test_state_of_other_types_and_shapes_keeps_them(tmp_path: Path):
    tensor = torch.zeros(4)
    state = {"state1": torch.arange(4, dtype=torch.uint8), "absmax1": torch.ones(2), "step": 5}
    write(named_state([Shard("a", 0, 4, tensor)], {tensor: state}), tmp_path, 0)
    optimizer = AdamW([tensor])
    StateFiles(tmp_path).restore([Shard("a", 0, 4, tensor)], optimizer.state)
    found = optimizer.state[tensor]
    assert found.keys() == state.keys()
    assert type(found["step"]) is int
    assert found["step"] == 5
    for kind in ("state1", "absmax1"):
        assert torch.equal(found[kind], state[kind])
        assert found[kind].dtype == state[kind].dtype


def test_a_checkpoint_without_the_file_of_a_rank_or_of_another_model_is_refused_by_name(tmp_path: Path):
    saved(tmp_path, 2)
    files = StateFiles(tmp_path)
    with pytest.raises(ValueError, match="it has 4 of 5 elements of b"):
        files.check(SIZES | {"b": 5})
    with pytest.raises(ValueError, match="it has 1 of 0 elements of c"):
        files.check({"a": 7, "b": 4})
    (tmp_path / "rank-00001-00000.safetensors").unlink()
    with pytest.raises(ValueError, match="it has 4 of 7 elements of a"):
        StateFiles(tmp_path).check(SIZES)


def test_a_checkpoint_is_refused_by_name_unless_every_rank_has_written_its_part(tmp_path: Path):
    """With more ranks than elements some parts are empty."""
    saved(tmp_path / STATE, 9)
    saved(tmp_path / CRITIC, 2)
    refuse_incomplete(tmp_path, 9, 2)
    with pytest.raises(LearnerError, match=r"lacks the files of learner rank 9, learner rank 10, .* share"):
        refuse_incomplete(tmp_path, 11, 0)
    with pytest.raises(LearnerError, match=r"lacks the files of critic rank 2, and"):
        refuse_incomplete(tmp_path, 9, 3)


def test_a_rank_without_tensors_writes_a_file_too(tmp_path: Path):
    write([], tmp_path / STATE, 0)
    refuse_incomplete(tmp_path, 1, 0)
    StateFiles(tmp_path / STATE).check({})


def test_state_that_lacks_an_element_is_refused(tmp_path: Path):
    shards, optimizer = saved(tmp_path, 2)
    path = tmp_path / "rank-00001-00000.safetensors"
    save_file({key: values for key, values in load_file(path).items() if key != "a/exp_avg/4"}, path)
    with pytest.raises(ValueError, match="it has 4 of 7 elements of the exp_avg of a"):
        StateFiles(tmp_path).restore(shards, optimizer.state)


def test_files_of_two_checkpoints_in_one_folder_are_refused(tmp_path: Path):
    shards, optimizer = stepped()
    for rank, save in enumerate(("first", "second")):
        write(named_state((shard.share(rank, 2) for shard in shards), optimizer.state), tmp_path, rank, save)
    with pytest.raises(ValueError, match=r"rank-00000-00000.safetensors and rank-00001-00000.safetensors are of two"):
        StateFiles(tmp_path)

"""Staged weights are all of the weights, in files that can be mapped, and nothing stays behind."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.types import TensorSpec
from agentrl.weights import staging as sender
from agentrl.weights.digest import tensor_digest
from agentrl.weights.staging import discard_leftovers, stage, stage_adapter

TENSORS = {
    "embed": torch.arange(1000, dtype=torch.float32).view(10, 100),
    "norm": torch.ones(7, dtype=torch.bfloat16),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
    "big": torch.randn(64, 64),
    "view": torch.randn(8, 8).t(),
}


def read(bucket: dict[str, Any]) -> dict[str, torch.Tensor]:
    with Path(bucket["path"]).open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    out = {}
    for entry in bucket["tensors"]:
        shape, dtype = torch.Size(entry["shape"]), getattr(torch, entry["dtype"])
        if shape.numel():
            flat = torch.frombuffer(memory, dtype=dtype, count=shape.numel(), offset=entry["offset"])
            out[entry["name"]] = flat.view(shape)
        else:
            out[entry["name"]] = torch.zeros(shape, dtype=dtype)
    return out


@pytest.mark.parametrize("bucket_bytes", [1, 4096, 1 << 20])
def test_every_tensor_arrives_under_its_digest(tmp_path: Path, bucket_bytes: int) -> None:
    arrived: dict[str, torch.Tensor] = {}
    specs: list[TensorSpec] = []
    nbytes = 0
    for bucket in stage(TENSORS.items(), tmp_path, bucket_bytes):
        arrived |= read(bucket.load)
        specs += bucket.tensors
        nbytes += bucket.nbytes
        bucket.discard()
    assert list(arrived) == list(TENSORS) == [spec.name for spec in specs]
    for spec in specs:
        assert torch.equal(arrived[spec.name], TENSORS[spec.name])
        assert spec.digest == tensor_digest(arrived[spec.name])
        assert (spec.shape, getattr(torch, spec.dtype)) == (TENSORS[spec.name].shape, TENSORS[spec.name].dtype)
    assert nbytes == sum(tensor.nbytes for tensor in TENSORS.values())


def test_a_bucket_holds_no_more_than_its_size_unless_one_tensor_does(tmp_path: Path) -> None:
    for bucket in stage(TENSORS.items(), tmp_path, bucket_bytes=4608):
        assert bucket.path.stat().st_size <= 4608 or len(bucket.tensors) == 1
        bucket.discard()


def test_a_bucket_is_written_when_it_is_asked_for(tmp_path: Path) -> None:
    read_so_far = []

    def weights() -> Any:
        for name in "abc":
            read_so_far.append(name)
            yield name, torch.randn(1024)

    buckets = stage(weights(), tmp_path, bucket_bytes=4096)
    next(buckets).discard()
    assert read_so_far == ["a", "b"], "b showed that the first bucket was full"
    assert len([bucket.discard() for bucket in buckets]) == 2


def test_discard_removes_the_files_and_may_be_repeated(tmp_path: Path) -> None:
    [bucket] = stage(TENSORS.items(), tmp_path, 1 << 20)
    still_mapped = read(bucket.load)
    bucket.discard()
    bucket.discard()
    assert not bucket.path.exists()
    assert torch.equal(still_mapped["big"], TENSORS["big"])


def test_without_room_in_shared_memory_the_run_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_SHARED_MEMORY", tmp_path / "absent")
    [bucket] = stage(TENSORS.items(), tmp_path, 1 << 20)
    assert bucket.path.parent == tmp_path
    assert torch.equal(read(bucket.load)["big"], TENSORS["big"])
    bucket.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def weights() -> Any:
        yield "first", torch.randn(2000)
        yield "second", torch.randn(2000)
        raise RuntimeError("the gather failed")

    monkeypatch.setattr(sender, "_SHARED_MEMORY", tmp_path / "absent")
    buckets = stage(weights(), tmp_path, bucket_bytes=4096)
    next(buckets).discard()
    with pytest.raises(RuntimeError, match="gather"):
        next(buckets)
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_is_a_folder_of_its_own_that_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_SHARED_MEMORY", tmp_path / "absent")
    named = list(TENSORS.items())
    staged = stage_adapter(named, tmp_path, lambda folder: (folder / "adapter").touch())
    assert (Path(staged.load["adapter"]) / "adapter").exists()
    assert {spec.name: spec.digest for spec in staged.tensors} == {n: tensor_digest(t) for n, t in named}
    assert staged.nbytes == sum(tensor.nbytes for tensor in TENSORS.values())
    staged.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_that_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(sender, "_SHARED_MEMORY", tmp_path / "absent")
    with pytest.raises(OSError, match="full"):
        stage_adapter(list(TENSORS.items()), tmp_path, fail)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_staged_is_discarded_and_nobody_elses(tmp_path: Path) -> None:
    named = list(TENSORS.items())
    [mine], [other] = (stage(named, tmp_path / name, 1 << 20) for name in ("mine", "other"))
    adapter = stage_adapter(named, tmp_path / "mine", lambda folder: (folder / "adapter").touch())
    try:
        discard_leftovers(tmp_path / "mine")
        assert [one.path.exists() for one in (mine, adapter, other)] == [False, False, True]
    finally:
        other.discard()

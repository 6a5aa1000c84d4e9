"""The transfers between GPUs: our sender drives vLLM's own trainer engines and workers, with fakes of GPUs alone."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
import torch

from agentrl.errors import EngineDiedError, WeightsError
from agentrl.types import Version
from agentrl.weights import collective
from agentrl.weights.collective import GpuSender, Route, Source
from tests.real.fake_gpus import WAIT_S, Gpus, WorkerEngine, installed

pytestmark = pytest.mark.real
DEADLINE_S, LATE_S = 20.0, 2.0
BUCKET = 1024
LAYERS = {f"layers.{n}.{part}": size for n in range(30) for part, size in (("a", 100), ("b", 60))}
SIZES = {"embed": 700, **LAYERS, "norm": 3}
"""Float32 elements; the embedding is larger than a bucket, and the model than what a sender may hold."""


class Learner:
    """Weights that are gathered one at a time; `live` counts the bytes of those that somebody holds."""

    def __init__(self, ranks: int = 1) -> None:
        self.passes, self.most = 0, 0
        self._live: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self._meeting = threading.Barrier(ranks)
        self.values = {name: torch.randn(size) for name, size in SIZES.items()}

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        self.passes += 1
        for name, value in self.values.items():
            self._meeting.wait(DEADLINE_S)  # a gather, for which all ranks meet
            tensor = value.clone()
            self._live.add(tensor)
            self.most = max(self.most, sum(each.nbytes for each in self._live))
            yield name, tensor
            del tensor

    def shapes(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((name, torch.empty(size, device="meta")) for name, size in SIZES.items())

    def sender(self, backend: str, rank: int = 0, workers: int = 1) -> GpuSender:
        source, ports = Source(self.weights, self.shapes), count(1)
        return GpuSender(Route(backend, workers), source, rank, "127.0.0.1", lambda: next(ports), BUCKET)  # type: ignore[arg-type]


def shapes() -> dict[str, torch.Size]:
    return {name: torch.Size([size]) for name, size in SIZES.items()}


def engines(backend: str, number: int = 2, workers: int = 1) -> list[WorkerEngine]:
    return [WorkerEngine(backend, shapes(), range(workers)) for _ in range(number)]


def send(sender: GpuSender, version: Version, team: list[WorkerEngine], deadline_s: float = DEADLINE_S) -> None:
    sender.send(version, [engine.as_engine() for engine in team], [id(engine) for engine in team], deadline_s)


def assert_holds(team: list[WorkerEngine], learner: Learner) -> None:
    for model in (model for engine in team for model in engine.models):
        for name, value in learner.values.items():
            assert torch.equal(model.held(name), value), name


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpus:
    return installed(monkeypatch, tmp_path)


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_every_engine_holds_the_weights_which_were_gathered_once(gpus: Gpus, backend: str) -> None:
    learner, team = Learner(), engines(backend)
    sender = learner.sender(backend)
    for n in range(2):
        learner.values = {name: value + 1 for name, value in learner.values.items()}
        send(sender, Version(0, n), team)
        assert_holds(team, learner)
        assert learner.passes == n + 1
    for engine in team:
        assert [call for call in engine.calls if call != "load"] == [
            "init_transfer",
            *["start_update", "finish_update"] * 2,
        ]
    largest = 4 * max(SIZES.values())
    assert learner.most <= BUCKET + 2 * largest, "a bucket and what is being gathered, not the model"
    sender.close()


def test_nccl_sends_in_buckets_of_the_size_that_is_set(gpus: Gpus) -> None:
    learner, team = Learner(), engines("nccl")
    sender = learner.sender("nccl")
    send(sender, Version(0, 0), team)
    [group] = gpus.groups
    assert group.world_size == 3
    assert group.sizes == [2800, 1040, *[1280] * 14, 252], "each ends with the tensor that exceeds the size"
    sender.close()


@pytest.mark.parametrize("number", [2, 8])
def test_every_worker_of_every_engine_has_a_rank_of_its_own_and_receives(gpus: Gpus, number: int) -> None:
    """Engines with tensor parallelism have several workers, each of which receives all tensors."""
    learner, team = Learner(), engines("nccl", number, workers=2)
    sender = learner.sender("nccl", workers=2)
    send(sender, Version(0, 0), team)
    assert_holds(team, learner)
    [group] = gpus.groups
    assert sorted(group.ranks) == list(range(1 + 2 * number))
    assert [[one.rank for one in engine.communicators] for engine in team] == [
        [1 + 2 * index, 2 + 2 * index] for index in range(number)
    ]
    sender.close()


def test_ipc_makes_room_for_a_tensor_that_is_larger_than_a_bucket(gpus: Gpus) -> None:
    """Qwen2.5-7B has an embedding of 1.015 GiB, where vLLM's buffer has 1 GiB by default."""
    learner, team = Learner(), engines("ipc", 1)
    sender = learner.sender("ipc")
    send(sender, Version(0, 0), team)
    assert_holds(team, learner)
    assert gpus.sizes == [4 * SIZES["embed"]]
    sender.close()


def test_ranks_that_do_not_send_gather_each_tensor_with_the_sender(gpus: Gpus) -> None:
    learner, team = Learner(ranks=2), engines("nccl")
    sender, other = learner.sender("nccl", 0), learner.sender("nccl", 1)
    thread = threading.Thread(target=send, args=(other, Version(0, 0), team))
    thread.start()
    send(sender, Version(0, 0), team)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert learner.passes == 2
    assert_holds(team, learner)
    assert len(gpus.groups) == 1, "only the sender has a communicator"
    sender.close()


def test_an_engine_that_dies_in_mid_broadcast_frees_the_sender_and_the_other_ranks(gpus: Gpus) -> None:
    learner, team = Learner(ranks=2), engines("nccl")
    team[1].dies_at = 1
    sender, other = learner.sender("nccl", 0), learner.sender("nccl", 1)
    thread = threading.Thread(target=send, args=(other, Version(0, 0), team))
    thread.start()
    with pytest.raises(WeightsError, match="its process died while it received weights"):
        send(sender, Version(0, 0), team)
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the other rank waits in a gather"
    assert gpus.groups[0].is_broken.is_set()


@pytest.mark.parametrize("deadline_s", [LATE_S, DEADLINE_S], ids=["hangs", "dies"])
def test_an_engine_that_does_not_join_frees_the_sender_that_waits_for_it(gpus: Gpus, deadline_s: float) -> None:
    learner, team = Learner(), engines("nccl")
    if deadline_s == DEADLINE_S:
        team[1].workers[0].init_transfer_engine = _die
    else:
        team[1].hangs_in = "init_transfer"
    began = time.monotonic()
    with pytest.raises(WeightsError, match="gone" if deadline_s == DEADLINE_S else "connecting to the sender"):
        send(learner.sender("nccl"), Version(0, 0), team, deadline_s)
    assert time.monotonic() - began < WAIT_S / 2, "not as long as a group waits"
    assert learner.passes == 1, "the other ranks gather all tensors"


def _die(*_: object) -> None:
    raise EngineDiedError("gone")


@pytest.mark.parametrize(("rank", "error"), [(0, torch.OutOfMemoryError), (1, RuntimeError)])
def test_an_error_of_the_rank_s_own_gpu_is_not_blamed_on_the_engines(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, rank: int, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("CUDA error")

    learner, team = Learner(), engines("ipc", 1)
    sender = learner.sender("ipc", rank)
    monkeypatch.setattr(type(sender), "_connected", fail)
    with pytest.raises(error, match="CUDA error"):
        send(sender, Version(0, 0), team)


@pytest.mark.parametrize("call", ["init_transfer", "start_update", "finish_update"])
def test_an_engine_that_answers_no_call_ends_the_send_of_every_rank_by_the_deadline(gpus: Gpus, call: str) -> None:
    learner, team = Learner(ranks=2), engines("nccl")
    team[1].hangs_in = call
    sender, other = learner.sender("nccl", 0), learner.sender("nccl", 1)
    thread = threading.Thread(target=send, args=(other, Version(0, 0), team, LATE_S))
    thread.start()
    with pytest.raises(WeightsError, match=r"2 engines did not answer in 2 s"):
        send(sender, Version(0, 0), team, LATE_S)
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the other rank waits in a gather"


def test_a_blocked_event_loop_ends_the_send_too(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "GRACE_S", 0.1)
    learner, team = Learner(), engines("nccl")
    team[1].hangs_in, team[1].blocks = "start_update", threading.Event()
    try:
        with pytest.raises(WeightsError, match=r"starting an update: 2 engines did not answer in 2 s"):
            send(learner.sender("nccl"), Version(0, 0), team, LATE_S)
    finally:
        team[1].blocks.set()


def test_after_a_failed_send_a_new_group_is_made_and_the_old_communicators_are_released(gpus: Gpus) -> None:
    learner, team = Learner(), engines("nccl")
    team[1].dies_at = 1
    sender = learner.sender("nccl")
    with pytest.raises(WeightsError):
        send(sender, Version(0, 0), team)
    again = [WorkerEngine("nccl", shapes()) for _ in range(2)]
    send(sender, Version(0, 1), again)
    assert_holds(again, learner)
    send(sender, Version(0, 2), [again[0], WorkerEngine("nccl", shapes())])
    assert [group.world_size for group in gpus.groups] == [3, 3, 3]
    first, second = again[0].communicators
    assert (first.is_destroyed, second.is_destroyed) == (True, False), "a worker that joins again leaves the old group"
    sender.close()


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_what_the_learner_s_own_weights_raise_is_not_blamed_on_the_engines(gpus: Gpus, backend: str) -> None:
    learner, team = Learner(), engines(backend, 1)
    weights = learner.weights

    def out_of_memory() -> Iterator[tuple[str, torch.Tensor]]:
        yield from islice(weights(), 4)
        raise torch.OutOfMemoryError("CUDA out of memory")

    learner.weights = out_of_memory  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        send(learner.sender(backend), Version(0, 0), team)


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_a_tensor_that_changes_on_the_way_is_named(gpus: Gpus, backend: str) -> None:
    learner, team = Learner(), engines(backend, 1)
    gpus.flips_bits = True
    with pytest.raises(WeightsError, match=r"tensor 'embed' changed on the way"):
        send(learner.sender(backend), Version(0, 0), team)


def test_weights_that_are_not_what_was_declared_are_named_before_they_are_sent(gpus: Gpus) -> None:
    learner, team = Learner(), engines("nccl", 1)
    learner.values["layers.0.a"] = torch.randn(7)
    with pytest.raises(WeightsError, match=r"ValueError: .*disagrees with iteration at index 1: declared 'layers.0.a'"):
        send(learner.sender("nccl"), Version(0, 0), team)
    [group] = gpus.groups
    assert group.is_broken.is_set(), "engines wait for the rest until the sender leaves the group"

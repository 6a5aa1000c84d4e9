"""The client of a GPU transfer drives every engine, under deadlines."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import torch

from agentrl.errors import DeadlineError, EngineDiedError, WeightsError
from agentrl.types import Version, WeightManifest
from agentrl.weights.collective import Source, SyncClient
from agentrl.weights.digest import tensor_digest
from tests.unit.weights.recording import Recording

VERSION = Version(0, 1)


async def test_the_client_of_a_gpu_transfer_drives_every_engine() -> None:
    engines: list[Any] = [Recording(), Recording()]
    client = SyncClient(engines, asyncio.get_running_loop(), 5.0, workers_per_engine=2)
    source = Source({"a": torch.ones(3)}.items, {"a": torch.ones(3)}.items)
    client.manifest = lambda: source.manifest(VERSION)
    source.begin()

    def drive() -> None:
        client.init_weight_transfer_engine({"rank_offset": 1, "world_size": 5})
        client.start_weight_update()
        client.update_weights({"names": [name for name, _ in source]})
        client.finish_weight_update()

    await asyncio.to_thread(drive)
    for index, engine in enumerate(engines):
        assert engine.calls == ["init_transfer", "start_update", "load", "finish_update"]
        assert engine.args[0] == {"rank_offset": 1 + 2 * index, "world_size": 5}
        manifest = engine.args[-1]
        assert isinstance(manifest, WeightManifest)
        assert [(spec.name, spec.digest) for spec in manifest.tensors] == [("a", tensor_digest(torch.ones(3)))]


async def test_eight_engines_of_two_workers_get_distinct_ranks_of_one_world() -> None:
    engines: list[Any] = [Recording() for _ in range(8)]
    client = SyncClient(engines, asyncio.get_running_loop(), 5.0, workers_per_engine=2)
    await asyncio.to_thread(client.init_weight_transfer_engine, {"rank_offset": 1, "world_size": 17})
    told = [engine.args[0] for engine in engines]
    assert [info["rank_offset"] + worker for info in told for worker in range(2)] == list(range(1, 17))
    assert {info["world_size"] for info in told} == {17}


async def test_an_engine_that_hangs_ends_the_clients_call_by_its_deadline() -> None:
    engines: list[Any] = [Recording(gates={"load": asyncio.Event()})]
    client = SyncClient(engines, asyncio.get_running_loop(), 0.05)
    started = time.monotonic()
    await asyncio.to_thread(client.update_weights, {})
    assert isinstance(client.error, DeadlineError)
    assert str(client.error) == "receiving weights: 1 engines did not answer in 0.05 s"
    assert time.monotonic() - started < 2.0


async def test_after_a_failure_engines_are_asked_nothing_and_the_sender_is_aborted() -> None:
    failure, aborts = EngineDiedError("gone"), list[str]()
    engines: list[Any] = [Recording(), Recording(fails={"start_update": failure})]
    client = SyncClient(engines, asyncio.get_running_loop(), 5.0)
    client.abort = lambda: aborts.append("abort")
    for call in (client.start_weight_update, lambda: client.update_weights({})):
        await asyncio.to_thread(call)
    assert client.error is failure
    assert [engine.calls for engine in engines] == [["start_update"], ["start_update"]]
    assert aborts == ["abort"] * 2, "also a group that was not there yet at the first call"


async def test_nothing_is_sent_without_a_manifest() -> None:
    client = SyncClient([], asyncio.get_running_loop(), 1.0)
    with pytest.raises(WeightsError, match="manifest"):
        await asyncio.to_thread(client.finish_weight_update)

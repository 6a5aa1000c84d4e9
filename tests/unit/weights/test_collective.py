"""The client of a GPU transfer drives every engine, under deadlines."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import torch

from agentrl.errors import DeadlineError, WeightsError
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


async def test_an_engine_that_hangs_ends_the_clients_call_by_its_deadline() -> None:
    engines: list[Any] = [Recording(gates={"load": asyncio.Event()})]
    client = SyncClient(engines, asyncio.get_running_loop(), 0.05)
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="receiving weights"):
        await asyncio.to_thread(client.update_weights, {})
    assert time.monotonic() - started < 2.0


async def test_nothing_is_sent_without_a_manifest() -> None:
    client = SyncClient([], asyncio.get_running_loop(), 1.0)
    with pytest.raises(WeightsError, match="manifest"):
        await asyncio.to_thread(client.finish_weight_update)

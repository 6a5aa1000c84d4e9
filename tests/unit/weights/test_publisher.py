"""A publication reaches every engine in order, under one deadline, or says which engines must be restarted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.errors import DeadlineError, EngineDiedError, WeightsError
from agentrl.types import Version, WeightManifest
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.collective import Source, SyncClient
from agentrl.weights.publisher import Probe, PublicationError, publish, publish_sent
from agentrl.weights.staging import Staged, stage

VERSION = Version(0, 1)


class Recording:
    """Not an engine but the order of its calls; `fails` raises where it is told to."""

    def __init__(self, fails: dict[str, Exception] | None = None, logprob: float = -1.0, hangs: str = "") -> None:
        self.calls: list[str] = []
        self.given: list[Any] = []
        self.fails, self.logprob, self.hangs = fails or {}, logprob, hangs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def call(*arguments: Any) -> Any:
            *given, deadline_s = arguments
            self.calls.append(name)
            self.given.extend(given)
            assert deadline_s > 0
            if name == self.hangs:
                await asyncio.Event().wait()
            if name in self.fails:
                raise self.fails[name]
            return (self.logprob,) * (len(given[0]) - 1) if name == "score" else None

        return call


@pytest.fixture
def staged(tmp_path: Path) -> Any:
    tensors = {"a": torch.randn(600), "b": torch.randn(600)}
    staged = stage(tensors.items(), VERSION, tmp_path, bucket_bytes=2400)
    yield staged
    staged.discard()


def probe() -> Probe:
    return Probe(LogprobCanary((1, 2, 3), "float32"), (-1.0, -1.0))


async def test_each_engine_is_paused_loaded_verified_resumed_and_asked(staged: Staged) -> None:
    engines: list[Any] = [Recording(), Recording()]
    published = await publish(engines, staged, probe(), 10.0)
    assert published.canary == 0.0
    for engine in engines:
        assert engine.calls == ["pause", "start_update", "load", "load", "finish_update", "resume", "score"]


@pytest.mark.parametrize("step", ["pause", "start_update", "load", "finish_update", "resume", "score"])
async def test_a_failing_engine_is_named_and_goes_no_further(staged: Staged, step: str) -> None:
    broken: Any = Recording({step: EngineDiedError("gone")})
    whole: Any = Recording()
    with pytest.raises(PublicationError, match="did not reach engine 1: gone") as raised:
        await publish([whole, broken], staged, probe(), 10.0)
    assert list(raised.value.faults) == [1]
    assert broken.calls[-1] == step
    assert whole.calls[-1] == "score"


async def test_a_canary_that_fails_fails_the_publication(staged: Staged) -> None:
    engines: list[Any] = [Recording(logprob=-1.001)]
    with pytest.raises(PublicationError, match="canary"):
        await publish(engines, staged, probe(), 10.0)


async def test_a_bug_is_no_fault_of_an_engine(staged: Staged) -> None:
    engines: list[Any] = [Recording({"load": TypeError("a bug")})]
    with pytest.raises(TypeError):
        await publish(engines, staged, probe(), 10.0)


async def test_a_spent_deadline_is_an_engines_fault(staged: Staged) -> None:
    class Slow(Recording):
        async def pause(self, deadline_s: float) -> None:
            await asyncio.sleep(deadline_s)

    engines: list[Any] = [Slow()]
    with pytest.raises(PublicationError) as raised:
        await publish(engines, staged, probe(), 0.02)
    assert isinstance(raised.value.faults[0], DeadlineError)


async def test_one_collective_send_updates_all_or_none() -> None:
    engines: list[Any] = [Recording(), Recording()]

    async def send() -> None:
        assert all(engine.calls == ["pause"] for engine in engines)

    await publish_sent(engines, send, VERSION, probe(), 10.0)
    assert all(engine.calls == ["pause", "resume", "score"] for engine in engines)

    async def fail() -> None:
        raise WeightsError("the collective broke")

    with pytest.raises(PublicationError) as raised:
        await publish_sent(engines, fail, VERSION, probe(), 10.0)
    assert list(raised.value.faults) == [0, 1]
    assert engines[0].calls[-1] == "pause"

    with pytest.raises(PublicationError) as raised:
        await publish_sent(engines, asyncio.Event().wait, VERSION, probe(), 0.02)  # type: ignore[arg-type]
    assert all(isinstance(fault, DeadlineError) for fault in raised.value.faults.values())


async def test_the_client_of_a_gpu_transfer_drives_every_engine() -> None:
    engines: list[Any] = [Recording(), Recording()]
    client = SyncClient(engines, asyncio.get_running_loop(), 5.0, workers_per_engine=2)
    client.manifest = Source({"a": torch.ones(3)}.items).manifest(VERSION)

    def drive() -> None:
        client.init_weight_transfer_engine({"rank_offset": 1, "world_size": 5})
        client.start_weight_update()
        client.update_weights({"names": ["a"]})
        client.finish_weight_update()

    await asyncio.to_thread(drive)
    for place, engine in enumerate(engines):
        assert engine.calls == ["init_transfer", "start_update", "load", "finish_update"]
        assert engine.given[0] == {"rank_offset": 1 + 2 * place, "world_size": 5}
        assert isinstance(engine.given[-1], WeightManifest)


async def test_an_engine_that_hangs_ends_the_clients_call_by_its_deadline() -> None:
    engines: list[Any] = [Recording(hangs="load")]
    client = SyncClient(engines, asyncio.get_running_loop(), 0.05)
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="receiving weights"):
        await asyncio.to_thread(client.update_weights, {})
    assert time.monotonic() - started < 2.0


async def test_nothing_is_sent_without_a_manifest() -> None:
    client = SyncClient([], asyncio.get_running_loop(), 1.0)
    with pytest.raises(WeightsError, match="manifest"):
        await asyncio.to_thread(client.finish_weight_update)

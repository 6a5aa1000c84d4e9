"""Buckets reach every engine in order and at its own pace, and no more of them exist than must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.errors import LearnerError, WeightsError
from agentrl.types import Version
from agentrl.weights.delivery import AHEAD, Delivery
from agentrl.weights.staging import StagedBucket, stage
from agentrl.weights.transfer import StagedTransfer

VERSION = Version(0, 1)
COUNT = 6


class Source:
    """Stages COUNT buckets; `fails_at` is the number of one that cannot be written."""

    def __init__(self, folder: Path, fails_at: int = -1) -> None:
        self._folder, self._fails_at = folder, fails_at
        self.buckets: list[StagedBucket] = []

    async def stage(self, version: Version = VERSION, deadline_s: float = 1.0) -> AsyncGenerator[StagedBucket]:
        for number, bucket in enumerate(stage(((f"{n}", torch.randn(8)) for n in range(COUNT)), self._folder, 64)):
            self.buckets.append(bucket)
            if number == self._fails_at:
                bucket.discard()
                raise LearnerError("rank 0 died")
            yield bucket

    @property
    def held(self) -> list[int]:
        return [number for number, bucket in enumerate(self.buckets) if bucket.path.exists()]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def held(bucket: dict[str, Any]) -> bool:
    return Path(bucket["path"]).exists()


async def test_every_reader_gets_all_buckets_in_order_and_the_manifest_names_them(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with StagedTransfer(source.stage).opened([None] * 2, VERSION, 1.0) as delivery:  # type: ignore[list-item]

        async def read(reader: int) -> list[str]:
            names = []
            while bucket := await delivery.next(reader):
                names += [tensor["name"] for tensor in bucket["tensors"]]
                assert held(bucket)
                await asyncio.sleep(0)
            return names

        assert await asyncio.gather(read(0), read(1)) == [[str(number) for number in range(COUNT)]] * 2
        assert [spec.name for spec in delivery.manifest.tensors] == [str(number) for number in range(COUNT)]
        assert (delivery.manifest.version, delivery.nbytes) == (VERSION, COUNT * 32)
    assert source.held == []


async def test_staging_waits_for_the_slowest_reader(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with StagedTransfer(source.stage).opened([None] * 2, VERSION, 1.0) as delivery:  # type: ignore[list-item]
        for number in range(AHEAD):
            assert await delivery.next(0), number
        await delivery.next(1)
        await settle()
        assert source.held == [*range(AHEAD)], "reader 1 still loads the first"
        await delivery.next(1)
        await settle()
        assert source.held == [*range(1, 1 + AHEAD)]
        delivery.leave(1)
        await delivery.next(0)
        await settle()
        assert source.held == [*range(AHEAD, 2 * AHEAD)]
        delivery.leave(0)
        await delivery.staged()
        assert len(source.buckets) == COUNT, "the ranks of the learner gather all of it together"
    assert source.held == []


async def test_readers_of_a_failed_staging_are_told_and_its_owner_gets_the_error(tmp_path: Path) -> None:
    source, told = Source(tmp_path, fails_at=1), []

    async def publish() -> None:
        async with StagedTransfer(source.stage).opened([None], VERSION, 1.0) as delivery:  # type: ignore[list-item]
            told.extend(await asyncio.gather(delivery.next(0), delivery.staged(), return_exceptions=True))

    with pytest.raises(LearnerError, match="rank 0 died"):
        await publish()
    assert [(type(error), str(error)) for error in told] == [(WeightsError, "staging failed: rank 0 died")] * 2
    assert source.held == []


async def test_all_is_staged_when_the_last_bucket_is_though_a_slow_reader_has_room_for_no_more(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with StagedTransfer(source.stage).opened([None], VERSION, 1.0) as delivery:  # type: ignore[list-item]
        for _ in range(COUNT - AHEAD + 1):
            await delivery.next(0)
        await asyncio.wait_for(delivery.staged(), 5.0)
        assert len(source.held) == AHEAD


async def test_a_publication_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path)

    async def publish() -> None:
        async with StagedTransfer(source.stage).opened([None], VERSION, 1.0) as delivery:  # type: ignore[list-item]
            await delivery.next(0)
            await asyncio.Event().wait()

    publishing = asyncio.create_task(publish())
    await settle()
    assert len(source.held) == AHEAD
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert source.held == []


def test_a_delivery_without_readers_holds_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path)

    async def run() -> None:
        delivery = Delivery(source.stage(), VERSION, [], 1.0)
        await delivery.run()
        assert (delivery.nbytes, source.held) == (COUNT * 32, [])

    asyncio.run(run())


async def test_a_reader_that_keeps_the_others_waiting_is_left_behind(tmp_path: Path) -> None:
    source = Source(tmp_path)
    delivery = Delivery(source.stage(), VERSION, ["", ""], patience_s=0.05)
    running = asyncio.create_task(delivery.run())
    assert await delivery.next(1), "it loads the first bucket for ever"
    loaded = 0
    while await delivery.next(0):
        loaded += 1
    await running
    assert loaded == COUNT
    with pytest.raises(WeightsError, match=r"kept the other engines waiting for 0\.05 s"):
        await delivery.next(1)
    delivery.discard()
    assert source.held == []


async def test_the_last_reader_has_all_the_time_there_is(tmp_path: Path) -> None:
    source = Source(tmp_path)
    delivery = Delivery(source.stage(), VERSION, [""], patience_s=0.01)
    running = asyncio.create_task(delivery.run())
    assert await delivery.next(0)
    await asyncio.wait({running}, timeout=0.1)
    assert [await delivery.next(0) is not None for _ in range(COUNT)] == [True] * (COUNT - 1) + [False]
    await running

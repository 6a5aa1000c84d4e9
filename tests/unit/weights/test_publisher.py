"""A publication reaches every engine in order and under deadlines; an engine that it does not reach is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.errors import AgentRLError, EngineDiedError, LearnerError, WeightsError
from agentrl.types import Version
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import StagedBucket, stage
from agentrl.weights.transfer import CollectiveTransfer, StagedTransfer
from tests.unit.weights.recording import Fleet, Recording

VERSION = Version(0, 1)
STAGED = ["pause", "start_update", "load", "load", "finish_update", "resume", "score"]


class Learner:
    """Stages two buckets of weights, and scores as an engine does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.versions, self.staged = folder, list[Version](), list[StagedBucket]()

    async def buckets(self, version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        tensors = {"a": torch.randn(600), "b": torch.randn(600)}
        self.versions.append(version)
        for bucket in stage(tensors.items(), self.folder, bucket_bytes=2400):
            self.staged.append(bucket)
            yield bucket

    async def logprobs(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        return (-1.0,) * (len(ids) - 1)


@pytest.fixture
def learner(tmp_path: Path) -> Any:
    learner = Learner(tmp_path)
    yield learner
    assert not any(bucket.path.exists() for bucket in learner.staged), "staged weights are left"


def staged(learner: Learner, fleet: Fleet, deadline_s: float = 10.0, **options: Any) -> Publisher:
    canary = LogprobCanary((1, 2, 3), "float32")
    return Publisher(fleet, StagedTransfer(learner.buckets), deadline_s, canary, learner.logprobs, **options)


async def test_each_engine_is_paused_loaded_verified_resumed_and_scored(learner: Learner) -> None:
    fleet = Fleet(Recording(), Recording())
    timings = await staged(learner, fleet).publish(VERSION)
    assert [engine.calls for engine in fleet.engines.values()] == [STAGED, STAGED]
    assert [fleet.replaced, timings.canary] == [{}, 0.0]
    assert timings.stage_s > 0
    assert timings.mib > 0


@pytest.mark.parametrize("step", ["pause", "start_update", "load", "finish_update", "resume", "score"])
async def test_a_failing_engine_is_replaced_and_goes_no_further(learner: Learner, step: str) -> None:
    whole, broken = Recording(), Recording({step: EngineDiedError("gone")})
    fleet = Fleet(whole, broken)
    await staged(learner, fleet).publish(VERSION)
    assert fleet.replaced == {1: "gone"}
    assert broken.calls[-1] == step
    assert whole.calls[-1] == "score"


async def test_an_engine_samples_on_as_soon_as_its_own_load_is_done(learner: Learner) -> None:
    gate = asyncio.Event()
    fast, slow = Recording(), Recording(gates={"load": gate})
    publishing = asyncio.create_task(staged(learner, Fleet(fast, slow)).publish(VERSION))
    await asyncio.wait_for(fast.scored.wait(), 5.0)
    assert fast.calls == STAGED
    assert slow.calls[-1] == "load"
    gate.set()
    await publishing
    assert slow.calls == STAGED


async def test_an_engine_that_fails_the_canary_is_replaced(learner: Learner) -> None:
    fleet = Fleet(Recording(logprob=-1.001))
    await staged(learner, fleet).publish(VERSION)
    assert "canary" in fleet.replaced[0]


async def test_a_bug_is_no_fault_of_an_engine(learner: Learner) -> None:
    fleet = Fleet(Recording({"load": TypeError("a bug")}))
    with pytest.raises(TypeError):
        await staged(learner, fleet).publish(VERSION)
    assert fleet.replaced == {}


async def test_an_engine_that_spends_the_deadline_is_replaced(learner: Learner) -> None:
    class Slow(Recording):
        async def pause(self, deadline_s: float) -> None:
            await asyncio.sleep(deadline_s)

    fleet = Fleet(Slow())
    await staged(learner, fleet, deadline_s=0.02).publish(VERSION)
    assert fleet.replaced == {0: "publishing took longer than 0.02 s"}


async def test_a_learner_that_cannot_stage_ends_the_run_and_touches_no_engine(learner: Learner) -> None:
    async def fail(version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        raise LearnerError("learner rank 0 died")
        yield

    fleet = Fleet(Recording())
    with pytest.raises(LearnerError, match="rank 0 died"):
        await Publisher(fleet, StagedTransfer(fail), 10.0).publish(VERSION)
    assert (fleet.engines[0].calls, fleet.replaced) == ([], {})


async def test_a_learner_that_dies_between_two_buckets_ends_the_run_and_is_no_fault_of_an_engine(
    learner: Learner,
) -> None:
    async def half(version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        async for bucket in learner.buckets(version, deadline_s):
            yield bucket
            raise LearnerError("learner rank 0 died")

    fleet = Fleet(Recording())
    with pytest.raises(LearnerError, match="rank 0 died"):
        await Publisher(fleet, StagedTransfer(half), 10.0).publish(VERSION)
    assert (set(fleet.engines[0].calls) <= {"pause", "start_update", "load"}, fleet.replaced) == (True, {})


async def test_a_learner_that_cannot_score_the_canary_ends_the_run(learner: Learner) -> None:
    async def fail(ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        raise LearnerError("learner rank 0 died")

    fleet, canary = Fleet(Recording()), LogprobCanary((1, 2, 3), "float32")
    with pytest.raises(LearnerError, match="rank 0 died"):
        await Publisher(fleet, StagedTransfer(learner.buckets), 10.0, canary, fail).publish(VERSION)
    assert fleet.replaced == {}


async def test_a_learner_that_hangs_while_it_stages_spends_the_deadline(learner: Learner) -> None:
    async def hang(version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        await asyncio.sleep(deadline_s)
        raise LearnerError("learner rank 0 does not answer")
        yield

    fleet = Fleet(Recording())
    with pytest.raises(LearnerError, match="does not answer"):
        await Publisher(fleet, StagedTransfer(hang), 0.05).publish(VERSION)
    assert fleet.engines[0].calls == []


async def test_without_an_engine_that_is_up_nothing_is_staged(learner: Learner) -> None:
    await staged(learner, Fleet()).publish(VERSION)
    assert learner.staged == []


async def test_an_engine_that_was_restarted_gets_the_present_version(learner: Learner) -> None:
    publisher, engine = staged(learner, Fleet()), Recording()
    with pytest.raises(WeightsError, match="nothing was published yet"):
        await publisher.refill(engine)
    await publisher.publish(VERSION)
    async with publisher.lock:
        refilling = asyncio.create_task(publisher.refill(engine))
        await asyncio.sleep(0)
        assert learner.versions == [], "an update is under way"
    await refilling
    assert engine.calls == STAGED
    assert learner.versions == [VERSION]
    with pytest.raises(EngineDiedError):
        await publisher.refill(Recording({"load": EngineDiedError("gone again")}))


async def test_engines_that_share_gpus_sleep_until_they_are_published_to(learner: Learner) -> None:
    fleet = Fleet(Recording())
    publisher = staged(learner, fleet, shares_gpus=True)
    await publisher.publish(VERSION)
    await publisher.keep()
    assert fleet.naps == ["wake"], "an engine that has started sleeps"
    await publisher.yield_gpus()
    await publisher.keep()
    assert fleet.naps == ["wake", "sleep", "wake"]
    assert learner.versions == [VERSION] * 2


async def test_a_new_engine_that_shares_a_gpu_is_woken_for_its_weights(learner: Learner) -> None:
    publisher, engine = staged(learner, Fleet(), shares_gpus=True), Recording()
    await publisher.publish(VERSION)
    await publisher.refill(engine)
    assert engine.calls == ["wake", *STAGED]


async def test_engines_with_gpus_of_their_own_never_sleep(learner: Learner) -> None:
    fleet = Fleet(Recording())
    await staged(learner, fleet).yield_gpus()
    assert fleet.naps == []


async def test_a_collective_send_updates_all_engines_or_none(learner: Learner) -> None:
    async def publish(send: Any, deadline_s: float = 10.0) -> Fleet:
        fleet = Fleet(Recording(), Recording())
        canary = LogprobCanary((1, 2, 3), "float32")
        await Publisher(fleet, CollectiveTransfer(send), deadline_s, canary, learner.logprobs).publish(VERSION)
        return fleet

    async def send(version: Version, engines: Sequence[Any], deadline_s: float) -> None:
        assert [engine.calls for engine in engines] == [["pause"]] * 2

    async def fail(*_: object) -> None:
        raise WeightsError("the collective broke")

    fleet = await publish(send)
    assert [engine.calls for engine in fleet.engines.values()] == [["pause", "resume", "score"]] * 2
    fleet = await publish(fail)
    assert fleet.replaced == dict.fromkeys((0, 1), "the collective broke")
    assert fleet.incidents == ["the collective broke"], "one cause is one incident"
    assert fleet.engines[0].calls == ["pause"]


@pytest.mark.parametrize("error", [LearnerError("rank 1 failed in send"), AgentRLError("rank 1: send raised KeyError")])
async def test_what_fails_in_the_learner_during_a_collective_send_is_blamed_on_no_engine(error: AgentRLError) -> None:
    """Its ranks are no longer in the same collective: the next send would hang, or mix tensors up."""
    fleet = Fleet(Recording(), Recording())

    async def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error), match="rank 1"):
        await Publisher(fleet, CollectiveTransfer(fail), 10.0).publish(VERSION)
    assert fleet.replaced == {}


async def test_an_engine_that_cannot_pause_leaves_a_collective_send_to_the_others() -> None:
    sent: list[Any] = []

    class Gone(Recording):
        async def pause(self, deadline_s: float) -> None:
            assert deadline_s == 2.5, "the others wait for it for a quarter of the deadline"
            raise EngineDiedError("engine 1: its process died")

    async def send(version: Version, engines: Sequence[Any], deadline_s: float) -> None:
        sent.extend(engines)

    fleet = Fleet(Recording(), Gone(), Recording())
    await Publisher(fleet, CollectiveTransfer(send), 10.0).publish(VERSION)
    assert sent == [fleet.engines[0], fleet.engines[2]]
    assert fleet.replaced == {1: "engine 1: its process died"}
    assert fleet.engines[2].calls == ["pause", "resume"]


async def test_a_collective_send_and_what_follows_share_one_deadline() -> None:
    left: list[float] = []

    class Timed(Recording):
        async def resume(self, deadline_s: float) -> None:
            left.append(deadline_s)

    async def send(*_: object) -> None:
        await asyncio.sleep(0.05)

    await Publisher(Fleet(Timed()), CollectiveTransfer(send), 10.0).publish(VERSION)
    assert left[0] < 9.96

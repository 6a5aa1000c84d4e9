"""A slow environment neither keeps the batches of others waiting nor loses its own place."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agentrl.errors import DeadlineError, RunError
from agentrl.rollout.groups import RolloutSettings
from agentrl.rollout.scheduler import Scheduler
from agentrl.rollout.slots import Slots
from agentrl.rollout.task_order import EnvPlan
from agentrl.types import EpisodeSettings, Signal, Version
from tests.unit.rollout.test_scheduler import MemoryJournal, Workers, settings, settle_down

V0 = Version(0, 0)
EPISODE = EpisodeSettings(1.0, 8, 0, 10.0, 10.0)


def two(slow: float = 1.0, fast: float = 1.0, concurrency: int = 0, **changes: object) -> RolloutSettings:
    """Settings of a slow and a fast environment with these weights."""
    plans = (
        EnvPlan("slow", EPISODE, 1, weight=slow, concurrency=concurrency),
        EnvPlan("fast", EPISODE, 2, weight=fast),
    )
    return settings(**({"envs": plans, "prompts": 4, "max_staleness": 1} | changes))


def in_flight(workers: Workers) -> Counter[str]:
    """Number of groups in flight by environment."""
    return Counter({request.sample.group: request.env for request, _ in workers.open.values()}.values())


def finish(workers: Workers, env: str, version: Version) -> None:
    for (sample, attempt), (request, _) in list(workers.open.items()):
        if request.env == env:
            workers.finish(sample, version, attempt)


async def test_a_slow_environment_keeps_no_batch_waiting_and_holds_at_most_its_share() -> None:
    workers, journal = Workers(), MemoryJournal()
    scheduler = Scheduler(two(), workers, journal, V0)
    scheduler.start()
    for step in range(6):
        await settle_down()
        assert in_flight(workers)["slow"] <= 4
        finish(workers, "fast", Version(0, step))
        await settle_down()
        finish(workers, "fast", Version(0, step))
        batch = await scheduler.next_batch(1)
        assert {t.env for group in batch.groups for t in group.trajectories} == {"fast"}
        scheduler.trained(Version(0, step + 1))
    finish(workers, "slow", Version(0, 6))
    await settle_down()
    batch = await scheduler.next_batch(1)
    assert {t.env for group in batch.groups for t in group.trajectories} == {"slow"}
    scheduler.trained(Version(0, 7))
    await settle_down()
    assert in_flight(workers)["slow"] == 4, "it catches up, within its share"
    await scheduler.stop()


@pytest.mark.parametrize("changes", [{"max_staleness": 0}, {"on_stale": "wait"}])
async def test_in_order_of_dispatch_every_batch_has_the_shares_of_the_weights(changes: dict[str, object]) -> None:
    workers, journal = Workers(), MemoryJournal()
    scheduler = Scheduler(two(slow=1, fast=3, **changes), workers, journal, V0)
    scheduler.start()
    for step in range(4):
        await settle_down()
        finish(workers, "fast", Version(0, step))
        if step == 0:
            with pytest.raises(DeadlineError, match=r"no batch of 4 groups.* groups in flight \(slow \d\)"):
                await scheduler.next_batch(0.01)
        finish(workers, "slow", Version(0, step))
        batch = await scheduler.next_batch(1)
        assert Counter(group.trajectories[0].env for group in batch.groups) == {"slow": 1, "fast": 3}
        scheduler.trained(Version(0, step + 1))
    await scheduler.stop()


async def test_an_environment_whose_verifier_fails_stops_the_run_and_is_named() -> None:
    workers, journal = Workers(), MemoryJournal()
    scheduler = Scheduler(two(slow=1, fast=3, max_staleness=0), workers, journal, V0)
    scheduler.start()
    await settle_down()
    finish(workers, "fast", V0)
    for sample, attempt in list(workers.open):
        workers.finish(sample, V0, attempt, signals=(Signal.invalid("right", "the verifier is down"),))
    await settle_down()
    with pytest.raises(RunError, match=r"2 of the last 2 samples of slow are invalid .* right: the verifier is down"):
        await scheduler.next_batch(1)
    await scheduler.stop()


def test_the_patience_for_a_batch_counts_the_episodes_that_wait_for_each_other() -> None:
    assert two().patience_s == 3 * 10.0
    assert two(concurrency=3).patience_s == 3 * 10.0 * 3, "8 episodes, 3 at once"


async def test_episodes_over_the_limit_wait_in_order_and_keep_no_other_environment_waiting() -> None:
    slots, begun, go_on = Slots({"slow": 1, "fast": 0}), list[str](), asyncio.Event()

    async def episode(env: str, name: str) -> None:
        async with slots.of(env):
            begun.append(name)
            await go_on.wait()

    names = ["slow 1", "slow 2", "fast 1", "slow 3", "fast 2"]
    episodes = [asyncio.create_task(episode(name.split()[0], name)) for name in names]
    await settle_down()
    assert begun == ["slow 1", "fast 1", "fast 2"]
    go_on.set()
    await asyncio.gather(*episodes)
    assert begun[3:] == ["slow 2", "slow 3"]

"""Law 8: the same seed gives the same randomness, and no episode touches another's."""

from __future__ import annotations

import asyncio

from agentrl.env import EnvDriver, StopReason, Task
from tests.unit.env.worlds import Talk


async def play(driver: EnvDriver, task: Task, seed: int = 0, member: int = 0) -> list[str]:
    """All messages of one episode."""
    await driver.reset(task, seed=seed, member=member)
    for turn in range(4):
        await driver.step("a" * turn)
        await asyncio.sleep(0)
    await driver.finish(StopReason.ENV_DONE)
    await driver.close()
    return [str(m["content"]) for m in driver.ctx.messages]


async def test_twins_run_side_by_side_are_equal() -> None:
    task = await EnvDriver(Talk()).task("train", 5)
    alone = await play(EnvDriver(Talk()), task, 3, 1)
    crowd = await asyncio.gather(*(play(EnvDriver(Talk()), task, 3, member) for member in (1, 0, 1, 2, 1)))
    assert crowd[0] == crowd[2] == crowd[4] == alone


async def test_members_of_a_group_differ() -> None:
    task = await EnvDriver(Talk()).task("train", 5)
    group = await asyncio.gather(*(play(EnvDriver(Talk()), task, 3, member) for member in range(8)))
    assert len({tuple(messages) for messages in group}) == 8


async def test_seed_split_and_index_each_change_the_randomness() -> None:
    played = [
        await play(EnvDriver(Talk()), task, seed)
        for seed in (0, 1)
        for task in (
            Task("t", split="train", index=0),
            Task("t", split="test", index=0),
            Task("t", split="train", index=1),
        )
    ]
    assert len({tuple(s) for s in played}) == 6


async def test_tasks_follow_from_seed_split_and_index() -> None:
    one, other = EnvDriver(Talk()), EnvDriver(Talk())
    assert await one.task("train", 9, seed=4) == await other.task("train", 9, seed=4)
    tasks = [await one.task(split, index, seed) for split in ("train", "test") for index in (0, 1) for seed in (0, 1)]
    assert len({task.data for task in tasks}) == 8

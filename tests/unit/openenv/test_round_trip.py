"""The adapter `openenv:` plays an environment of agentrl over the wire as it is played directly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrl.env import make_env, play, testing
from tests.unit.openenv.test_server import serving


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    testing.close_shared_sync()


async def test_a_conversation_is_the_same_through_the_wire() -> None:
    turns = ["3", "no idea", "1", "2", "4", "5"]
    async with serving("guess") as url:
        far = (await asyncio.to_thread(play, make_env(f"openenv:{url}"), turns, split="test", index=2))[0]
    near = play(make_env("guess"), turns, split="test", index=2)[0]
    assert far.messages == near.messages
    assert far.reward == pytest.approx(near.reward)


async def test_endless_tasks_are_chosen_by_seeds() -> None:
    async with serving("math") as url:
        env = make_env(f"openenv:{url}")
        questions = [(await asyncio.to_thread(play, env, ["?"], index=index))[0].messages[0] for index in (0, 1, 0)]
    assert questions[0] == questions[2] != questions[1]


async def test_tools_and_the_last_message_pass_the_wire() -> None:
    turns = [testing.tool_call("add", n=4), testing.tool_call("fail"), "It is 4."]
    async with serving("tests.unit.env.worlds:Desk") as url:
        far = await asyncio.to_thread(testing.rehearse, make_env(f"openenv:{url}"), turns)
    near = testing.rehearse(make_env("tests.unit.env.worlds:Desk"), turns)
    assert [message["content"] for message in far.messages] == [message["content"] for message in near.messages]
    assert (far.reward, far.stop_reason) == (near.reward, near.stop_reason)


async def test_a_failing_reward_is_no_reward_on_the_other_side() -> None:
    async with serving() as url:
        far = await asyncio.to_thread(testing.rehearse, make_env(f"openenv:{url}"), ["judge"])
    assert far.stop_reason.value == "infra_error"
    assert "no verdict" in far.error
    assert far.signals == ()

"""Process rewards inside an environment reach the turns of the policy that they score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from agentrl.algorithms.sample import Sample
from agentrl.env import Context, Env, EnvDriver, Message, Reply, Signal, StopReason, Task, Turn, reward
from agentrl.env.rewards import passes
from agentrl.reward_models import RewardModel, score_turns
from tests.unit.algorithms.cases import trajectory
from tests.unit.reward_models.lengths import serving


class Chat(Env):
    """Two turns after an example of one."""

    blocking = False

    def tasks(self, split: str) -> list[Task]:
        return [Task("chat")]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        example: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "an example"}]
        return [*example, {"role": "user", "content": "?"}]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        return Reply.say("more") if turn.index == 0 else Reply.end()

    async def by_turn(self, ctx: Context) -> tuple[Signal, ...]:
        model = RewardModel(str(SERVER.base_url), name="steps")
        signals = await score_turns(model, ctx.messages, len(ctx.turns))
        await model.aclose()
        return signals


class Scores(Chat):
    async def score(self, ctx: Context) -> tuple[Signal, ...]:
        return await self.by_turn(ctx)


class Rewards(Chat):
    @reward(weight=0.5)
    async def polite(self, ctx: Context) -> tuple[Signal, ...]:
        return await self.by_turn(ctx)


SERVER: httpx.AsyncClient


@pytest.fixture(autouse=True)
async def server() -> Any:
    global SERVER
    async with serving() as SERVER:
        yield


async def finish(env: Env) -> tuple[Signal, ...]:
    driver = EnvDriver(env)
    await driver.reset(await driver.task("train", 0))
    for text in ("a", "bb"):
        await driver.step(text)
    signals = await driver.finish(StopReason.ENV_DONE)
    await driver.close()
    return signals


@pytest.mark.parametrize(("env", "name", "weight"), [(Scores, "steps", 1.0), (Rewards, "polite", 0.5)])
async def test_the_score_of_each_turn_is_the_reward_of_its_last_token(env: type[Env], name: str, weight: float) -> None:
    signals = await finish(env())
    assert [(s.name, s.value, s.weight, s.scope, s.turn) for s in signals] == [
        (name, 1.0, weight, "turn", 0),
        (name, 2.0, weight, "turn", 1),
    ]
    sample = Sample.of(replace(trajectory(0, 0.0, lengths=(2, 2)), signals=signals))
    assert sample.rewards().tolist() == [0.0, weight, 0.0, 2 * weight]
    assert passes([*signals, Signal("solved", 0.0)]) is False, "steps do not add up to a result"


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        (Signal("x", 1.0, scope="turn", turn=2), "Signal.turn is 2; give an index below 2, the number"),
        (Signal("x", 1.0, scope="turn", turn=-1), "Signal.turn is -1"),
        (Signal("x", 1.0, scope="turn"), "Signal.turn is None"),
        (Signal("x", 1.0, scope="turn", turn=True), "Signal.turn is True"),
        (Signal("x", 1.0, turn=1), "Signal.turn is 1; give it the scope 'turn'"),
        (Signal("win", 1.0, agent="white"), "Signal.agent is 'white'; give '' or the name"),
    ],
)  # fmt: skip
async def test_a_reward_of_a_turn_or_an_agent_that_the_episode_does_not_have_is_invalid(
    signal: Signal, reason: str
) -> None:
    class Misplaced(Chat):
        def score(self, ctx: Context) -> Signal:
            return signal

    (found,) = await finish(Misplaced())
    assert (found.valid, found.value) == (False, None)
    assert reason in found.reason

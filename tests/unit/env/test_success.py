"""A pass is decided by the environment's `success`, or by half of what its rewards allow."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.env import Context, Env, EnvDriver, Message, Signal, Task, reward
from agentrl.env.rewards import passes
from agentrl.types import StopReason


def turn(value: float, index: int, weight: float = 1.0, name: str = "step") -> Signal:
    return Signal(name, value, weight, "turn", turn=index)


WHOLE = Signal("right", 1.0)
CASES = {
    "right": ([WHOLE], True),
    "wrong": ([Signal("right", 0.0)], False),
    "nothing at all": ([], False),
    "recorded only": ([Signal("right", 1.0, weight=0.0)], False),
    "half of several": ([Signal("test", v) for v in (1.0, 1.0, 0.0, 0.0)], True),
    "less than half of several": ([Signal("test", v) for v in (1.0, 0.0, 0.0, 0.0)], False),
    "right, and last of its group": ([WHOLE, Signal("first", 0.0, 0.2, "group")], True),
    "wrong, and first of its group": ([Signal("right", 0.0), Signal("first", 1.0, 0.2, "group")], False),
    "a group's reward alone": ([Signal("best", 1.0, 1.0, "group")], True),
    "turns alone, found at last": ([turn(0.0, 0), turn(0.0, 1), turn(0.0, 2), turn(1.0, 3)], True),
    "turns alone, never found": ([turn(0.0, 0), turn(0.0, 1)], False),
    "turns alone, found, and each turn costs": (
        [turn(1.0, 1), *(turn(1.0, n, -0.1, "cost") for n in range(2))],
        True,
    ),
    "turns with a penalty for the whole": ([turn(1.0, 0), Signal("length", 1.0, -0.1)], True),
    "many good steps and no result": ([Signal("solved", 0.0), *(turn(1.0, n, 0.1) for n in range(30))], False),
    "a result without good steps": ([WHOLE, *(turn(0.0, n, 0.1) for n in range(30))], True),
    "a judge that does not count has failed": ([WHOLE, Signal.invalid("style", "?", weight=0.0)], True),
}


@pytest.mark.parametrize(("signals", "is_pass"), CASES.values(), ids=CASES)
def test_rewards_that_reach_half_of_what_their_weights_allow_are_a_pass(signals: list[Signal], is_pass: bool) -> None:
    assert passes(signals) is is_pass


class Strict(Env):
    """Rewards a try, and calls only the right answer a success."""

    blocking = False
    says: Any = None

    def tasks(self, split: str) -> list[Task]:
        return [Task("one", "42")]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content="?")]

    @reward
    def tried(self, ctx: Context) -> float:
        return 0.9 + 0.1 * (ctx.text == "42")

    def success(self, ctx: Context) -> bool:
        if isinstance(self.says, Exception):
            raise self.says
        assert [s.name for s in ctx.signals] == ["tried"], "asked when the episode is scored"
        return ctx.text == "42" if self.says is None else self.says


async def verdict(driver: EnvDriver, answer: str = "42") -> Signal | None:
    await driver.reset(await driver.task("train", 0))
    await driver.step(answer)
    await driver.finish(StopReason.ENV_DONE)
    try:
        return await driver.success()
    finally:
        await driver.close()


async def test_an_environment_defines_success_itself() -> None:
    won, lost = await verdict(EnvDriver(Strict())), await verdict(EnvDriver(Strict()), "41")
    assert won is not None
    assert lost is not None
    assert (won.value, lost.value, won.weight) == (1.0, 0.0, 0.0)
    assert won.verifier == "Strict.success"


async def test_an_async_success_is_awaited_and_super_uses_the_rewards() -> None:
    class Later(Strict):
        async def success(self, ctx: Context) -> bool:
            return Env.success(self, ctx) is True and ctx.text == "42"

    won, lost = await verdict(EnvDriver(Later())), await verdict(EnvDriver(Later()), "41")
    assert won is not None
    assert lost is not None
    assert (won.value, lost.value) == (1.0, 0.0)


async def test_without_success_the_rewards_decide() -> None:
    class Silent(Env):
        blocking = False
        tasks, setup, tried = Strict.tasks, Strict.setup, Strict.tried

    assert await verdict(EnvDriver(Silent())) is None


@pytest.mark.parametrize(
    ("says", "reason"),
    [(ValueError("no idea"), "ValueError: no idea"), (0.3, "returned 0.3; return True or False"), ("yes", "'yes'")],
)
async def test_a_success_that_fails_is_invalid_and_no_failure_of_the_model(says: Any, reason: str) -> None:
    env = Strict()
    env.says = says
    unsaid = await verdict(EnvDriver(env))
    assert unsaid is not None
    assert (unsaid.valid, unsaid.value) == (False, None)
    assert reason in unsaid.reason

"""Worked examples before the question."""

import pytest
from agentrl_math import MathEnv, generator
from agentrl_math.shots import shots, shown
from agentrl_tools.calculator import calculate

from agentrl.env import EnvDriver, env_config
from agentrl.errors import ConfigError


@pytest.mark.parametrize("level", [1, 2, 3])
def test_an_example_is_right_and_never_held_out(level):
    messages = shots(level, 8, "calculator")
    held_out = {problem.question for problem in generator.held_out_problems(level)}
    for question, call, result, answer in zip(
        messages[::4], messages[1::4], messages[2::4], messages[3::4], strict=True
    ):
        assert question["content"] not in held_out
        (made,) = call["tool_calls"]
        assert calculate(made["function"]["arguments"]["expression"]) == result["content"] == answer["content"]
        assert made["id"] == result["tool_call_id"]


async def test_examples_stand_between_the_system_message_and_the_question():
    driver = EnvDriver(MathEnv(level=2, tools=["calculator"], shots=2, system="Compute."))
    start = await driver.reset(await driver.task("test", 0), seed=0)
    await driver.close()
    roles = [message["role"] for message in start.messages]
    assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 2, "user"]


def test_the_first_tool_that_can_be_shown_is():
    assert shown(["shell", "python:process", "calculator"]) == "python"
    assert shown(["mcp:time"]) is None


@pytest.mark.parametrize(
    "options", [{"shots": 1}, {"shots": 1, "tools": ["calculator"], "level": 4}, {"shots": 1, "tools": ["mcp:x"]}]
)
def test_examples_that_cannot_be_made_are_refused(options):
    with pytest.raises(ConfigError, match="shots"):
        env_config(MathEnv, options)

"""Worked examples before the question, which show a model how to call a tool."""
# ruff: noqa: RUF001  (intended sign)

import random
from collections.abc import Sequence

from agentrl.env import Message
from agentrl.types import FunctionCall, ToolCall
from agentrl_math import generator

ARGUMENTS = {"calculator": "expression", "python": "code"}
"""Tools that can be demonstrated, and their argument for an expression."""
LEVELS = (1, 2, 3)
"""Levels whose questions are expressions."""


def shots(level: int, number: int, tool: str) -> list[Message]:
    """Return `number` fixed training problems, each with a call of `tool`, its result and the answer."""
    return [message for index in range(number) for message in _shot(level, index, tool)]


def shown(tools: Sequence[str]) -> str | None:
    """Return the first of these tools that can be demonstrated, or None."""
    kinds = [name.partition(":")[0] for name in tools]
    return next((kind for kind in kinds if kind in ARGUMENTS), None)


def _shot(level: int, index: int, tool: str) -> list[Message]:
    problem = generator.problem(level, random.Random(f"agentrl-math/shot/{index}"))
    expression = problem.question.removeprefix("What is ").removesuffix("?").replace("×", "*")
    name = f"shot-{index}"
    function: FunctionCall = {"name": tool, "arguments": {ARGUMENTS[tool]: expression}}
    call: ToolCall = {"id": name, "type": "function", "function": function}
    return [
        {"role": "user", "content": problem.question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": problem.answer},
        {"role": "assistant", "content": problem.answer},
    ]

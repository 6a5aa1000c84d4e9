"""Worked examples before the question: they show a model that has never called a tool how it is done."""
# ruff: noqa: RUF001  (the sign that is meant)

import random
from collections.abc import Sequence

from agentrl.env import Message
from agentrl.types import FunctionCall, ToolCall
from agentrl_math import generator

ARGUMENTS = {"calculator": "expression", "python": "code"}
"""The tools that can be shown, and the argument that takes an expression."""
LEVELS = (1, 2, 3)
"""The levels whose questions are an expression."""


def shots(level: int, number: int, tool: str) -> list[Message]:
    """`number` problems of the trained side, always the same: each with a call of `tool`, its result and the answer."""
    return [message for place in range(number) for message in _shot(level, place, tool)]


def shown(tools: Sequence[str]) -> str | None:
    """Return the first of these tools that can be shown."""
    kinds = [name.partition(":")[0] for name in tools]
    return next((kind for kind in kinds if kind in ARGUMENTS), None)


def _shot(level: int, place: int, tool: str) -> list[Message]:
    problem = generator.problem(level, random.Random(f"agentrl-math/shot/{place}"))
    expression = problem.question.removeprefix("What is ").removesuffix("?").replace("×", "*")
    name = f"shot-{place}"
    function: FunctionCall = {"name": tool, "arguments": {ARGUMENTS[tool]: expression}}
    call: ToolCall = {"id": name, "type": "function", "function": function}
    return [
        {"role": "user", "content": problem.question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": problem.answer},
        {"role": "assistant", "content": problem.answer},
    ]

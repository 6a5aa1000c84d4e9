"""The environment: a request and some functions, one turn, right or wrong."""
# ruff: noqa: ARG002  (some hooks do not use their context)

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from agentrl.env import (
    Context,
    Env,
    EnvConfig,
    Limits,
    Message,
    Policy,
    Reply,
    Signal,
    Task,
    Tasks,
    Tool,
    Turn,
    reward,
)
from agentrl.types import ToolCall
from agentrl_functions import generator
from agentrl_functions.data import Problem, is_held_out, read_problems
from agentrl_functions.generator import KINDS, Kind
from agentrl_functions.match import OMITTED, Wanted, mismatch

INSTRUCTION = "Do what is asked by calling functions. When none of them fits, call none and say so."


class FunctionsConfig(EnvConfig):
    """The `--env.*` keys."""

    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="kinds of generated problems")
    data: Path | None = Field(None, description="JSONL file in the format of the Berkeley leaderboard, used instead")
    answers: Path | None = Field(None, description="file of its ground truths; default: answers/NAME next to it")
    heldout_share: float = Field(0.1, gt=0, lt=1, description="share of `data` held out")
    system: str = Field(INSTRUCTION, description="system message for problems without one; '' for none")


class FunctionsEnv(Env):
    """Call the right functions with the right arguments, or none: 1 or 0. The functions do nothing."""

    Config = FunctionsConfig
    config: FunctionsConfig
    limits = Limits(max_turns=1)
    blocking = False

    def preflight(self) -> str:
        """Check that the problems can be read; raises DataError."""
        if self.config.data is not None:
            read_problems(self.config.data, self.config.answers)
        return ""

    async def tasks(self, split: str) -> Tasks:
        """Endless draws for "train" and a fixed list for "test"; with `data`, the rows of that split."""
        if self.config.data is not None:
            problems = await asyncio.to_thread(read_problems, self.config.data, self.config.answers)
            is_test = split == "test"
            return [as_task(p) for p in problems if is_held_out(p, self.config.heldout_share) == is_test]
        if split == "test":
            return [as_task(problem) for problem in generator.held_out_problems(self.config.kinds)]
        return drawn(self.config.kinds)

    def tools(self, ctx: Context) -> Iterable[Tool]:
        """Return the functions of this task."""
        return [Tool(spec, acknowledge) for spec in ctx.task.data.tools]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Return the request, preceded by the system message if there is one."""
        messages = list(task.data.messages)
        if not self.config.system or messages[0]["role"] == "system":
            return messages
        return [Message(role="system", content=self.config.system), *messages]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        """End the episode after its only turn."""
        return Reply.end()

    @reward
    def right(self, ctx: Context) -> Signal:
        """1 for exactly the wanted calls; if none is wanted, for text without a call."""
        problem: Problem = ctx.task.data
        turn = ctx.turns[-1]
        fault = mismatch(turn.tool_calls, problem.wanted, problem.tools)
        if not problem.wanted and not turn.text.strip():
            fault = fault or "says nothing"
        return Signal("right", float(not fault), evidence=fault)

    @reward(weight=0)
    def named(self, ctx: Context) -> float:
        """Return whether the function names were right; recorded only."""
        called = sorted(call["function"]["name"] for call in ctx.turns[-1].tool_calls)
        return float(called == sorted(want.name for want in ctx.task.data.wanted))

    def oracle(self, task: Task) -> Policy:
        """Return the wanted calls, or a sentence that no function fits."""
        return [calling(gold_calls(task.data)) if task.data.wanted else "None of the functions can do that."]

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Policies that look busy."""
        problem: Problem = task.data
        if not problem.wanted:
            return {"silence": [""], "calls anyway": [calling([call_of(problem.tools[0]["name"], {})])]}
        calls = gold_calls(problem)
        return {
            "silence": [""],
            "only says so": [f"I call {json.dumps(calls, default=str)}"],
            "refuses": ["None of the functions can do that."],
            "one call too many": [calling([*calls, calls[0]])],
            "a made-up function": [calling([call_of("do_it", {}), *calls[1:]])],
            "a made-up argument": [calling([with_argument(call) for call in calls])],
            "arguments as text": [calling([call_of(call["function"]["name"], "the right ones") for call in calls])],
        }


def acknowledge(**_: Any) -> str:
    """Answer every call; the functions do nothing."""
    return "noted"


def as_task(problem: Problem) -> Task:
    """Return the task of a problem."""
    return Task(problem.id, problem)


def drawn(kinds: tuple[Kind, ...]) -> Callable[[random.Random], Task]:
    """Return a function that draws a training task."""
    return lambda rng: as_task(generator.problem(kinds, rng))


def calling(calls: Iterable[ToolCall]) -> Message:
    """Return an assistant's turn that consists of calls."""
    return Message(role="assistant", content="", tool_calls=list(calls))


def call_of(name: str, arguments: dict[str, Any] | str) -> ToolCall:
    """Return one call."""
    return ToolCall(type="function", function={"name": name, "arguments": arguments})


def with_argument(call: ToolCall) -> ToolCall:
    """Return the call with an argument that no function has."""
    arguments = call["function"]["arguments"]
    assert isinstance(arguments, dict)
    return call_of(call["function"]["name"], {**arguments, "made_up_argument": 1})


def gold_calls(problem: Problem) -> list[ToolCall]:
    """Return the wanted calls, with the first acceptable value of each required argument."""
    return [call_of(want.name, gold_arguments(want)) for want in problem.wanted]


def gold_arguments(want: Wanted) -> dict[str, Any]:
    """Arguments of one call."""
    return {name: gold(values[0]) for name, values in want.arguments.items() if OMITTED not in values}


def gold(value: Any) -> Any:
    """Return the first acceptable value; for an object, the first option of each required key."""
    if isinstance(value, dict):
        options = {key: one if isinstance(one, list) else [one] for key, one in value.items()}
        return {key: gold(one[0]) for key, one in options.items() if OMITTED not in one}
    return [gold(item) for item in value] if isinstance(value, list) else value

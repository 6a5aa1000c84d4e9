"""Countdown: reach a number by combining others, with one tool, in as many turns as it takes.

    agentrl train --env ./examples/countdown_env.py --env.numbers 3

Tasks are drawn on the spot, each with a solution: no data file. What the model says is never evaluated; it acts through
the tool alone, whose arguments are checked against its annotations.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from agentrl.env import Context, Env, EnvConfig, Limits, Message, Policy, Reply, Task, Tasks, Turn, reward, tool

Operator = Literal["+", "-", "*"]
Step = tuple[int, Operator, int]
OPERATORS: tuple[Operator, ...] = ("+", "-", "*")
HELD_OUT = 32


@dataclass(frozen=True)
class Puzzle:
    """Numbers, what to make of all of them, and one way to do it."""

    numbers: tuple[int, ...]
    target: int
    solution: tuple[Step, ...]


class CountdownConfig(EnvConfig):
    """The `--env.*` keys."""

    numbers: int = Field(3, ge=2, le=6, description="how many numbers a puzzle has")
    high: int = Field(9, ge=2, le=99, description="the largest of them")


class Countdown(Env):
    """`combine` replaces two numbers by one; the last one left should be the target."""

    Config = CountdownConfig
    config: CountdownConfig
    limits = Limits(max_turns=8)
    blocking = False

    def tasks(self, split: str) -> Tasks:
        """Endless for training; a fixed few that training is never shown for testing."""
        held_out = self._held_out()
        if split == "test":
            return held_out
        names = {task.id for task in held_out}
        return lambda rng: next(task for task in iter(lambda: self._draw(rng), None) if task.id not in names)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Tell the puzzle; the numbers that are left live in `ctx.state`."""
        ctx.state.left = list(task.data.numbers)
        text = (
            f"Numbers: {listed(task.data.numbers)}. Make {task.data.target} of all of them. "
            "combine takes two of the numbers away and gives you the result."
        )
        return [Message(role="user", content=text)]

    @tool
    def combine(self, first: int, operator: Operator, second: int) -> str:
        """Replace two numbers you have by `first operator second`.

        Args:
            first: one of your numbers
            operator: what to do with them
            second: another one of your numbers
        """
        left = self.ctx.state.left.copy()
        for number in (first, second):
            if number not in left:
                raise ValueError(f"you do not have {number}; you have {listed(self.ctx.state.left)}")
            left.remove(number)
        self.ctx.state.left = [*left, apply(first, operator, second)]
        return f"You have {listed(self.ctx.state.left)}."

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Over when one number is left, or when the model calls no tool."""
        is_over = len(ctx.state.left) == 1 or not turn.tool_calls
        return Reply.end() if is_over else Reply.go_on()

    @reward
    def solved(self, ctx: Context) -> float:
        """1 when the only number left is the target."""
        return float(ctx.state.left == [ctx.task.data.target])

    @reward(weight=0.1, scope="turn")
    def legal(self, ctx: Context) -> float:
        """Whether every call of the turn was one that the tool could carry out: something to learn before the rest."""
        results = ctx.turns[-1].results
        return float(bool(results) and all(str(result["content"]).startswith("You have") for result in results))

    def oracle(self, task: Task) -> Policy:
        """The solution that the puzzle was made from."""
        return [call(*step) for step in task.data.solution]

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Ways to look busy."""
        target = task.data.target
        return {
            "silence": [""],
            "says so": [f"The answer is {target}."],
            "uses numbers it does not have": [call(target, "+", 0)] * 3,
            "writes the call as prose": [f"combine({target}, '+', 0)"],
        }

    def _held_out(self) -> list[Task]:
        rng = random.Random("countdown/test")
        return [self._draw(rng) for _ in range(HELD_OUT)]

    def _draw(self, rng: random.Random) -> Task:
        numbers = tuple(rng.randint(1, self.config.high) for _ in range(self.config.numbers))
        left = list(numbers)
        steps: list[Step] = []
        while len(left) > 1:
            first, second = (left.pop(rng.randrange(len(left))) for _ in range(2))
            steps.append((first, rng.choice(OPERATORS), second))
            left.append(apply(*steps[-1]))
        return Task(f"{'-'.join(map(str, sorted(numbers)))}={left[0]}", Puzzle(numbers, left[0], tuple(steps)))


def apply(first: int, operator: Operator, second: int) -> int:
    """The value of one step."""
    return {"+": first + second, "-": first - second, "*": first * second}[operator]


def call(first: int, operator: Operator, second: int) -> Message:
    """An assistant's turn that calls the tool once."""
    arguments = {"first": first, "operator": operator, "second": second}
    return Message(role="assistant", content="", tool_calls=[{"function": {"name": "combine", "arguments": arguments}}])


def listed(numbers: list[int] | tuple[int, ...]) -> str:
    """'3, 5 and 8'."""
    *head, last = map(str, numbers)
    return f"{', '.join(head)} and {last}" if head else last

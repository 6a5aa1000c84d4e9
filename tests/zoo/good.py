"""Environments without a fault: every animal of the zoo is one of these with one thing broken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from agentrl.env import (
    Context,
    Env,
    Episode,
    Limits,
    Message,
    Policy,
    Reply,
    Task,
    Turn,
    is_in_share,
    reward,
    shared,
    tool,
)
from agentrl.types import text_of

LOADING_S = 0.5
PAIRS = [(a, b) for a in range(11, 31) for b in range(31, 51)]


class Sums(Env):
    """One question, one answer, right or wrong."""

    blocking = False

    def tasks(self, split: str) -> list[Task]:
        held_out = {(a, b) for a, b in PAIRS if is_in_share(f"{a}+{b}", 0.25)}
        return [Task(f"{a}+{b}", (a, b)) for a, b in PAIRS if ((a, b) in held_out) == (split == "test")]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        a, b = task.data
        return [Message(role="user", content=f"What is {a} + {b}? Write the number and nothing else.")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == str(sum(ctx.task.data)))

    def oracle(self, task: Task) -> Policy:
        return [str(sum(task.data))]

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"one more": [str(sum(task.data) + 1)]}


class Levels(Sums):
    """The same, and tasks of both splits have equal data but different questions."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {n}", [n]) for n in range(40)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"Write {self._code(task)} backwards, and nothing else.")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == self._code(ctx.task)[::-1])

    def oracle(self, task: Task) -> Policy:
        return [self._code(task)[::-1]]

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"forwards": [self._code(task)]}

    def _code(self, task: Task) -> str:
        return f"x{task.split == 'test':d}{task.index:03}{task.data[0]}"


class Race(Sums):
    """The same, and a little more for the shortest answers of a group."""

    @reward(weight=0.2, scope="group")
    def shortest(self, episodes: Sequence[Episode]) -> list[float]:
        best = min(len(episode.text) for episode in episodes)
        return [float(len(episode.text) == best) for episode in episodes]


class Slow(Sums):
    """The same, and its episodes share what takes a while to make."""

    @shared
    async def table(self) -> dict[int, int]:
        await asyncio.sleep(LOADING_S)
        return {}


class Seated(Sums):
    """The same, and only two episodes may be open at once, as with a server of few sessions."""

    @shared
    def seats(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(2)

    async def setup(self, task: Task, ctx: Context) -> list[Message]:  # type: ignore[override]
        await self.seats.acquire()
        ctx.state.seat = self.seats
        return super().setup(task, ctx)

    def teardown(self, ctx: Context) -> None:
        if seat := getattr(ctx.state, "seat", None):
            seat.release()


class Adder(Sums):
    """The same with a tool that adds, in two turns."""

    limits = Limits(max_turns=3)

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first number
            b: the second number
        """
        return a + b

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        return Reply.go_on() if turn.results else Reply.end()

    def oracle(self, task: Task) -> Policy:
        a, b = task.data
        call = Message(
            role="assistant", content="", tool_calls=[{"function": {"name": "add", "arguments": {"a": a, "b": b}}}]
        )
        return [call, str(a + b)]


class Guessing(Sums):
    """A number that replies to guesses narrow down; the oracle reads the guesses and the replies so far."""

    limits = Limits(max_turns=6)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.number, ctx.state.is_won = ctx.rng.randrange(1, 17), False
        return [Message(role="user", content=f"Game {task.id}: guess a number from 1 to 16. Write nothing else.")]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        if not re.fullmatch("[0-9]{1,2}", turn.text):
            return Reply.say("no number")
        ctx.state.is_won = int(turn.text) == ctx.state.number
        return Reply.end() if ctx.state.is_won else Reply.say("more" if int(turn.text) < ctx.state.number else "less")

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.state.is_won)

    def oracle(self, task: Task) -> Policy:
        def bisect(messages: list[Message]) -> str:
            low, high, guess = 1, 16, 0
            for message in messages:
                if message["role"] == "assistant":
                    guess = int(text_of(message))
                low = guess + 1 if message["content"] == "more" else low
                high = guess - 1 if message["content"] == "less" else high
            return str((low + high) // 2)

        return bisect

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"seventeen": ["17"] * 6}

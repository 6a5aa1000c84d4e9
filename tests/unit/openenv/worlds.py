"""An environment whose code does what the model says, and fails or hangs on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from agentrl.env import (
    AgentEnv,
    Context,
    Env,
    Episode,
    Limits,
    Message,
    Model,
    Reply,
    Task,
    TaskSource,
    Turn,
    reward,
    role,
)


class Fickle(Env):
    """Turns that say "raise" or "hang" do so; one that says "judge" makes the reward fail."""

    limits = Limits(max_turns=3, turn_timeout_s=0.2)
    blocking = False
    open: ClassVar[list[Context]] = []

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(4)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.open.append(ctx)
        return [Message(role="system", content="Be brief."), Message(role="user", content=f"Say {task.data}.")]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        if turn.text == "raise":
            raise KeyError("table")
        if turn.text in ("hang", "wait"):
            await asyncio.sleep(3600)
        return Reply.say("Again.") if turn.text == "more" else Reply.end()

    @reward(weight=0.5, scope="turn")
    def spoke(self, ctx: Context) -> float:
        return float(bool(ctx.text))

    @reward
    def right(self, ctx: Context) -> float:
        if ctx.text == "judge":
            raise ZeroDivisionError("no verdict")
        return float(ctx.text == str(ctx.task.data))

    def teardown(self, ctx: Context) -> None:
        self.open.remove(ctx)


class Patient(Fickle):
    """The same with a deadline that no test reaches."""

    limits = Limits(max_turns=3, turn_timeout_s=3600)


class Odd(Fickle):
    """Says what UTF-8 cannot express."""

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.open.append(ctx)
        return [Message(role="user", content="Say \ud83d.")]


class Long(Fickle):
    """More text than the buffers of a connection take."""

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.open.append(ctx)
        return [Message(role="user", content="x" * (16 << 20))]


class Endless(Fickle):
    """Tasks without end, and one that cannot be made."""

    def tasks(self, split: str) -> TaskSource:
        return Counted()


class Counted:
    """Every task but the thirteenth."""

    def __getitem__(self, index: int) -> Task:
        if index == 13:
            raise KeyError("no task today")
        return Task(f"task {index}", index)


class Grouped(Fickle):
    """A reward that compares the episodes of a group."""

    @reward(scope="group")
    def best(self, episodes: Sequence[Episode]) -> list[float]:
        return [0.0 for _ in episodes]


class Judged(Fickle):
    """A judge that a run would provide."""

    @role
    def judge(self, messages: list[Message]) -> str:
        """Judge the answer."""
        return "yes"


class Driven(AgentEnv):
    """An agent that drives."""

    def tasks(self, split: str) -> list[Task]:
        return [Task("one")]

    async def play(self, task: Task, ctx: Context, model: Model) -> None:
        """Do nothing."""

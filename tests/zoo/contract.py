"""Animals that break the contract of an environment."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field, field_serializer

from agentrl.env import Context, EnvConfig, Limits, Message, Task, reward, tool
from agentrl.types import Signal, text_of
from tests.zoo.good import PAIRS, Adder, Sums


class Unpaid(Sums):
    """Has no reward that counts."""

    caught_by = "definition"

    @reward(weight=0)
    def right(self, ctx: Context) -> float:
        return float(ctx.text == str(sum(ctx.task.data)))


class Unread(Sums):
    """Offers a tool in an episode of one turn."""

    caught_by = "definition"
    limits = Limits(max_turns=1)

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class Undocumented(Adder):
    """Has a tool that the model is told nothing about."""

    caught_by = "definition"

    @tool
    def double(self, a: int) -> int:
        return 2 * a


class Twice(Sums):
    """Defines a method twice."""

    caught_by = "definition"

    def first(self) -> int:
        return 1

    def first(self) -> int:  # noqa: F811
        return 2


class Homesick(Sums):
    """Needs a machine that is not this one."""

    caught_by = "definition"

    def preflight(self) -> str:
        raise RuntimeError("no licence server; start one")


class Untested(Sums):
    """Has no held-out task."""

    caught_by = "tasks"

    def tasks(self, split: str) -> list[Task]:
        return [] if split == "test" else super().tasks(split)


class Restless(Sums):
    """Draws other tasks whenever they are read."""

    caught_by = "tasks"

    def tasks(self, split: str) -> list[Task]:
        return [Task(task.id, (random.random(), 1)) for task in super().tasks(split)]


class Nameless(Sums):
    """Gives two tasks the same id."""

    caught_by = "tasks"

    def tasks(self, split: str) -> list[Task]:
        return [Task(task.id[:2], task.data) for task in super().tasks(split)]


class Overlapping(Sums):
    """Tests what it trains, under the same ids."""

    caught_by = "disjoint"

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{a}+{b}", (a, b)) for a, b in PAIRS]


class Disguised(Sums):
    """Tests what it trains, under other ids."""

    caught_by = "disjoint"

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {a}+{b}", (a, b)) for a, b in PAIRS]


class Restyled(Disguised):
    """Tests what it trains, in another layout and in capitals."""

    caught_by = "disjoint"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        [message] = super().setup(task, ctx)
        text = text_of(message)
        return [Message(role="user", content=text.upper().replace(" ", "\n ") if task.split == "test" else text)]


class Rare(Sums):
    """Tests one of many tasks that it trains, far from the first."""

    caught_by = "disjoint"

    def tasks(self, split: str) -> list[Task]:
        first = 0 if split == "train" else 10_000
        tasks = [Task(f"{split} {n}", (n, 0)) for n in range(first, first + 5_000)]
        return [*tasks, Task(f"{split} last", (4_500, 0))] if split == "test" else tasks


class Talkative(Sums):
    """Ends its prompt with a message of the assistant."""

    caught_by = "episode"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [*super().setup(task, ctx), Message(role="assistant", content="It is")]


class Hoarder(Sums):
    """Keeps the episodes of a worker in a list of its class."""

    caught_by = "episode"
    seen: list[str] = []  # noqa: RUF012 (the fault)

    @reward
    def right(self, ctx: Context) -> float:
        self.seen.append(ctx.task.id)
        return float(ctx.text.strip() == str(sum(ctx.task.data)))


class Editor(Sums):
    """Changes the data of the task, which the next episode gets."""

    caught_by = "episode"

    def tasks(self, split: str) -> list[Task]:
        return [Task(task.id, list(task.data)) for task in super().tasks(split)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        task.data.sort(reverse=True)
        return super().setup(task, ctx)


class Drawer(Adder):
    """Has a tool that takes numbers out of the task, which later episodes miss."""

    caught_by = "episode"

    def tasks(self, split: str) -> list[Task]:
        return [Task(task.id, [*task.data]) for task in super().tasks(split)]

    @tool
    def take(self) -> str:
        """Take the next number."""
        numbers = self.ctx.task.data
        return str(numbers.pop(0)) if numbers else "none is left"


class Solver(Adder):
    """Has a tool that sorts the numbers of the task, as its oracle asks it to."""

    caught_by = "episode"

    def tasks(self, split: str) -> list[Task]:
        return [Task(task.id, [*task.data]) for task in super().tasks(split)]

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        if [a, b] == self.ctx.task.data:
            self.ctx.task.data.sort(reverse=True)
        return a + b


class Boundless(Sums):
    """Has evidence that JSON cannot write."""

    caught_by = "json"

    @reward
    def right(self, ctx: Context) -> Signal:
        return Signal("right", float(ctx.text.strip() == str(sum(ctx.task.data))), evidence={"margin": float("inf")})


class Opaque(Sums):
    """Has evidence that no other program can read."""

    caught_by = "json"

    @reward
    def right(self, ctx: Context) -> Signal:
        return Signal("right", float(ctx.text.strip() == str(sum(ctx.task.data))), evidence={1: {2, 3}})


class Wordy(EnvConfig):
    """Writes a number as something else."""

    digits: int = Field(2, ge=1, description="digits of the numbers")

    @field_serializer("digits")
    def _spelled(self, digits: int) -> Any:
        return digits + 1


class Forgetful(Sums):
    """Has another configuration after it was stored."""

    caught_by = "config"
    Config = Wordy


class Moody(Sums):
    """Gives other messages for the same seed."""

    caught_by = "gymnasium"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"{super().setup(task, ctx)[0]['content']} {random.random()}")]

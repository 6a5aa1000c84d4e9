"""Small environments that the tests of agentrl.env drive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentrl.env import Context, Env, EnvConfig, Episode, Limits, Message, Reply, Task, Turn, reward, tool


class Echo(Env):
    """One turn; right when the answer is the task's number."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(10)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [{"role": "user", "content": f"Say {task.data}. Nonce {ctx.rng.random()}"}]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text == str(ctx.task.data))


class Inline(Echo):
    """The same on the event loop itself."""

    blocking = False


class Talk(Env):
    """Async methods, endless tasks, four turns, a reward for each turn."""

    limits = Limits(max_turns=4)

    async def tasks(self, split: str):
        return lambda rng: Task("talk", rng.random())

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [{"role": "user", "content": f"{task.data} {ctx.rng.random()}"}]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        return Reply.say(f"more {ctx.rng.random()}") if turn.index < 3 else Reply.end()

    @reward(weight=0.5, scope="turn")
    async def brief(self, ctx: Context) -> float:
        return float(len(ctx.text) < 5)

    @reward
    async def whole(self, ctx: Context) -> float:
        return float(len(ctx.turns))

    @reward(weight=2.0, scope="group")
    def best(self, episodes: Sequence[Episode]) -> list[float]:
        longest = max(len(e.messages) for e in episodes)
        return [float(len(e.messages) == longest) for e in episodes]


class InfraError(Exception):
    fault = "infra"


class Desk(Env):
    """Tools that add, fail, hang and break the machine."""

    limits = Limits(max_turns=8, tool_timeout_s=1.0)

    class Config(EnvConfig):
        start: int = 0

    def tasks(self, split: str) -> list[Task]:
        return [Task("desk")]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.total = self.config.start
        return [{"role": "user", "content": "Use the tools."}]

    @tool
    def add(self, n: int) -> int:
        """Add to the total.

        Args:
            n: how much
        """
        self.ctx.state.total += n
        return int(self.ctx.state.total)

    @tool
    async def fail(self) -> str:
        """Always fails."""
        raise ValueError("no such thing")

    @tool
    async def hang(self) -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return ""

    @tool
    async def break_down(self) -> str:
        """The machine is gone."""
        raise InfraError("sandbox lost")

    @reward
    def total(self, ctx: Context) -> float:
        return float(ctx.state.total)

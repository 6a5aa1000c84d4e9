"""An environment that offers one toolset, and calls of its tools."""

from __future__ import annotations

from typing import Any

from agentrl.env import Context, Env, EnvDriver, Limits, Message, Task
from tests.unit.env.test_tools import calls


class Guest(Env):
    """Offers the tools of one toolset."""

    toolset: Any

    def tasks(self, split: str) -> list[Task]:
        return [Task("t")]

    def tools(self, ctx: Context) -> list[object]:
        return [self.toolset]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [{"role": "user", "content": "Go."}]


def guest_with(toolset: object, **limits: float) -> Guest:
    env = Guest()
    env.toolset, env.limits = toolset, Limits(max_turns=50, **limits)  # type: ignore[arg-type]
    return env


async def say(driver: EnvDriver, name: str, **arguments: Any) -> str:
    (message,) = (await driver.step(calls((name, arguments)))).messages
    return str(message["content"])

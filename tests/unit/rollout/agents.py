"""Agents that are functions of a test, and the scripted policy that answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import AgentEnv, Context, Model, Task, Tasks, reward
from agentrl.rollout.episode import EpisodeRunner
from agentrl.types import Trajectory
from tests.unit.rollout import templates
from tests.unit.rollout.cases import Listening, request, stage
from tests.unit.rollout.templates import encode, tokenizer

TOOLED = tokenizer(templates.TOOLS)
ADD = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>'
Play = Callable[["Client"], Awaitable[Any]]


class Client:
    """A raw client of one episode's endpoint."""

    def __init__(self, http: httpx.AsyncClient, model: Model) -> None:
        self.http, self.model = http, model

    async def post(self, body: dict[str, Any], **headers: str) -> httpx.Response:
        keys = {"authorization": f"Bearer {self.model.api_key}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        body = {"model": self.model.name, **body}
        return await self.http.post(f"{self.model.base_url}/chat/completions", json=body, headers=keys)

    async def ask(self, *messages: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Return the message of the answer."""
        response = await self.post({"messages": list(messages), **options})
        response.raise_for_status()
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message


class Played(AgentEnv):
    """Whose agent is a function of the test."""

    blocking = False
    agent: Play
    right: float = 1.0

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(100)]

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        async with httpx.AsyncClient(timeout=300) as http:
            return await type(self).agent(Client(http, model))

    @reward
    def good(self, ctx: Context) -> float:
        return self.right


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def play(
    agent: Play, script: Any = ("four",), *, base: type[AgentEnv] = Played, context: int = 4000, **changes: Any
) -> tuple[Trajectory, Listening]:
    env = type("Mine", (base,), {"agent": staticmethod(agent)})
    engine = await ScriptedEngine.ready(
        list(script), encode=lambda text: encode(TOOLED, text), vocab_size=len(TOOLED), max_model_len=context
    )
    heard = Listening(engine)
    runtime = stage(heard, env, context, TOOLED)
    try:
        return await EpisodeRunner(request(**{"max_tokens": 200, **changes}), runtime).run(), heard
    finally:
        await runtime.endpoint.close()

"""A session: the episodes of one client, one after the other."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import uuid
from collections.abc import Sequence
from typing import Any

from agentrl.env import Env, EnvDriver, Task
from agentrl.env.driver.advance import Advance, advance
from agentrl.env.tasks import check_choice
from agentrl.errors import AgentRLError, ConfigError, acatch
from agentrl.openenv.wire import Action, Code, Observation, ResetRequest, WireError, invalid, read
from agentrl.plugins.tracebacks import describe_error
from agentrl.types import Message, ToolSpec, text_of

LOG = logging.getLogger("agentrl.openenv")
ENDLESS_SAMPLE = 1024
"""Number of tasks that seeds choose from if there are endlessly many."""


class Session:
    """The episodes of one client in an environment object of its own. Calls wait for each other."""

    def __init__(self, env: Env, tools: Sequence[ToolSpec]) -> None:
        self._driver = EnvDriver(env)
        self._tools = tools
        self._calling = asyncio.Lock()
        self._is_running = self._is_closed = False
        self._episode_id = ""

    async def reset(self, data: Any) -> Observation:
        """Begin an episode. Raises WireError."""
        return await self._call(self._reset, read(ResetRequest, data))

    async def step(self, data: Any) -> Observation:
        """Take a turn of the episode, or list the tools. Raises WireError: a failure is never a reward of 0."""
        action = read(Action, data)
        if action.type == "list_tools":
            return Observation({"tools": [tool_data(tool) for tool in self.tools]})
        return await self._call(self._step, action)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the running episode; before the first one, those of the first task."""
        return [tool.spec for tool in self._driver.ctx.tools.values()] if self._episode_id else self._tools

    @property
    def state(self) -> dict[str, Any]:
        """The state as clients read it."""
        if not self._episode_id:
            return {"episode_id": None, "step_count": 0}
        ctx = self._driver.ctx
        return {"episode_id": self._episode_id, "step_count": len(ctx.turns), **task_data(ctx.task)}

    async def close(self) -> None:
        """End the running episode, within the deadlines of its teardown. Idempotent."""
        self._is_closed = True
        async with self._calling:
            outcome = await acatch(self._driver.close())
        if outcome.error is not None:
            LOG.warning("an episode could not be torn down: %s", describe_error(outcome.error))

    async def _call(self, method: Any, request: Any) -> Observation:
        async with self._calling:
            if self._is_closed:
                raise WireError(Code.SESSION_ERROR, "this session has ended: open another one")
            outcome = await acatch(method(request))
            closed = await acatch(self._driver.close()) if not self._is_running else None
        if outcome.error is not None:
            raise failure(outcome.error) from outcome.error
        seen: Observation = outcome.value
        if closed and closed.error:
            seen.metadata["teardown_error"] = describe_error(closed.error)
        return seen

    async def _reset(self, asked: ResetRequest) -> Observation:
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        task = await self._task(asked, seed)
        self._is_running = False
        start = await self._driver.reset(task, seed=seed)
        self._is_running, self._episode_id = True, asked.episode_id or str(uuid.uuid4())
        return Observation(shown(start.messages), metadata={"seed": seed, **task_data(task)})

    async def _task(self, asked: ResetRequest, seed: int) -> Task:
        try:
            check_choice(asked.split)
        except ConfigError as error:
            raise invalid(str(error)) from None
        size = await self._driver.size(asked.split)
        drawn = random.Random(seed).randrange(size or ENDLESS_SAMPLE)
        index = drawn if asked.index is None else asked.index
        if size is not None and index >= size:
            raise invalid(f"index is {index}, but the split {asked.split!r} has {size} tasks")
        task = await self._driver.task(asked.split, index)
        if asked.id is not None and asked.id != task.id:
            raise invalid(f"task {index} of the split {asked.split!r} is {task.id!r}, not {asked.id!r}")
        return task

    async def _step(self, action: Action) -> Observation:
        if not self._is_running:
            raise WireError(Code.EXECUTION_ERROR, "no episode is running: send reset first")
        turn = self._turn(action)
        self._is_running = False  # unless the turn succeeds
        taken = await advance(self._driver, turn)
        reward = taken.reward if taken.signals else None
        self._is_running = taken.stop_reason is None
        content = shown(taken.messages) | (called(action, taken) if action.is_call else {})
        return Observation(content, reward, not self._is_running, scored(taken))

    def _turn(self, action: Action) -> Message | str:
        if not action.is_call:
            if action.message is None:
                raise invalid("an action needs a `message`, the text of the assistant's turn")
            return action.message
        if not action.tool_name:
            raise invalid("a call needs a `tool_name`")
        if not self.tools:
            raise invalid("this environment has no tools: send a `message`")
        call = {"name": action.tool_name, "arguments": action.arguments}
        number = len(self._driver.ctx.turns)
        return Message(
            role="assistant",
            content=action.message or "",
            tool_calls=[{"id": f"call_{number}", "type": "function", "function": call}],  # type: ignore[typeddict-item]
        )


def failure(error: Exception) -> WireError:
    """Return the error that a client receives for what the environment raised."""
    if isinstance(error, WireError):
        return error
    text = str(error) if isinstance(error, AgentRLError) else describe_error(error)
    return WireError(Code.EXECUTION_ERROR, text)


def shown(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the messages, and the text of those that answer no tool call."""
    texts = [text_of(message) for message in messages if message["role"] != "tool"]
    return {"text": "\n\n".join(filter(None, texts)), "messages": list(messages)}


def called(action: Action, taken: Advance) -> dict[str, Any]:
    """Return the result of a call as OpenEnv's clients of tools read it; what the model got wrong is in the result."""
    results = [text_of(message) for message in taken.messages if message["role"] == "tool"]
    return {"tool_name": action.tool_name, "result": results[0] if results else "", "error": None}


def scored(taken: Advance) -> dict[str, Any]:
    """Return the new signals, and why the episode ended."""
    signals = [{"name": s.name, "value": s.value, "weight": s.weight} for s in taken.signals]
    ended = {"stop_reason": taken.stop_reason} if taken.stop_reason else {}
    return {"signals": signals, **ended}


def task_data(task: Task) -> dict[str, Any]:
    """Return what names a task: `reset` takes it. Its data may contain the answer, and stays here."""
    return {"id": task.id, "split": task.split, "index": task.index}


def tool_data(tool: ToolSpec) -> dict[str, Any]:
    """Return the description of a tool as clients read it."""
    return {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}

"""The environment of a server, as its clients discover it: schemas, metadata, and the Task API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.config.schema import EnvSection
from agentrl.env import AgentEnv, Env, EnvDriver, make_env, resolve
from agentrl.env.rewards import rewards_of
from agentrl.env.roles import roles_of
from agentrl.errors import ConfigError
from agentrl.openenv.session import Session, task_data
from agentrl.openenv.wire import TasksRequest, invalid
from agentrl.packaging.description import Description, describe

MOST_TASKS = 1000
"""Tasks of one answer of the Task API."""
PATHS = {
    "/health": "get", "/schema": "get", "/metadata": "get", "/state": "get", "/list_environments": "get",
    "/reset": "post", "/step": "post", "/mcp": "post",
}  # fmt: skip
API_VERSION = "1.0.0"
"""The version of OpenEnv's HTTP interface that these paths implement."""


@dataclass(frozen=True, slots=True)
class Served:
    """An environment that is served under the name `label`."""

    label: str
    env: Env
    about: Description

    @classmethod
    async def of(cls, name: str, options: Mapping[str, Any]) -> Served:
        """Check that an environment can be served, and play the start of an episode. Raises ConfigError, EnvError."""
        kind = resolve(name)
        if issubclass(kind, AgentEnv):
            raise ConfigError(
                f"{kind.__name__} is an AgentEnv, whose agent asks the model: OpenEnv's clients are no model"
            )
        if groups := [reward.name for reward in rewards_of(kind, "group") if reward.weight]:
            raise ConfigError(f"{kind.__name__}: OpenEnv knows no groups, so nobody would pay {', '.join(groups)}")
        if roles := list(roles_of(kind)):
            raise ConfigError(f"{kind.__name__} asks {', '.join(roles)}: a server has no model for roles")
        about = await describe(name, options)
        return cls(EnvSection(name=name).label, make_env(name, **options), about)

    def session(self) -> Session:
        """Return a new session."""
        return Session(type(self.env)(self.env.config), self.about.start.tools)

    @property
    def metadata(self) -> dict[str, Any]:
        """What `GET /metadata` returns."""
        version = self.about.source.version or self.about.source.sha256[:12]
        return {"name": self.label, "description": self.about.summary, "version": version}

    @property
    def schemas(self) -> dict[str, Any]:
        """What `GET /schema` returns."""
        text = {"type": "string", "description": "the assistant's turn"}
        if self.about.start.tools:
            action = {
                "type": {"enum": ["message", "call_tool", "list_tools"], "default": "message"},
                "message": {**text, "default": ""},
                "tool_name": {"type": "string", "description": "the tool of a call"},
                "arguments": {"type": "object", "description": "its arguments", "default": {}},
            }
        else:
            action = {"message": text}
        messages = {"type": "array", "items": {"type": "object"}, "description": "the new messages, as chat messages"}
        observation = {"text": {"type": "string", "description": "their text"}, "messages": messages}
        state = {"episode_id": {"type": "string"}, "step_count": {"type": "integer"}}
        required = [] if self.about.start.tools else ["message"]
        return {
            "action": {"type": "object", "title": "Action", "properties": action, "required": required},
            "observation": {"type": "object", "title": "Observation", "properties": observation},
            "state": {"type": "object", "title": "State", "properties": state},
        }

    @property
    def openapi(self) -> dict[str, Any]:
        """What `GET /openapi.json` returns: the paths."""
        answer = {"responses": {"200": {"description": "OK"}}}
        paths = {path: {method: answer} for path, method in PATHS.items()}
        return {"openapi": "3.1.0", "info": {"title": self.label, "version": API_VERSION}, "paths": paths}

    @property
    def splits(self) -> list[dict[str, str]]:
        """What the Task API calls splits."""
        return [{"name": name, "type": name} for name in self.about.sizes]

    def size(self, asked: TasksRequest) -> int | None:
        """Number of tasks of a split, None if they are endless. Raises WireError for an unknown one."""
        if asked.split not in self.about.sizes:
            raise invalid(f"unknown split {asked.split!r}: there are {', '.join(self.about.sizes)}")
        return self.about.sizes[asked.split]

    async def tasks(self, asked: TasksRequest) -> list[dict[str, Any]]:
        """Return the tasks of a range. Raises WireError for one that is too long."""
        size, start = self.size(asked), asked.start or 0
        if size is None:
            if start < 0 or (asked.stop or 0) < 0:
                raise invalid(f"the tasks of the split {asked.split!r} are endless: there is no end to count from")
            stop = start + MOST_TASKS if asked.stop is None else asked.stop
        else:
            start, stop, _ = slice(start, asked.stop).indices(size)
        if stop - start > MOST_TASKS:
            raise invalid(f"{stop - start} tasks are too many for one answer: ask for {MOST_TASKS} at most")
        return [await self._task(asked.split, index) for index in range(start, stop)]

    async def task(self, asked: TasksRequest) -> dict[str, Any]:
        """Return the task at an index. Raises WireError for one out of range."""
        size = self.size(asked)
        if asked.index < 0 or (size is not None and asked.index >= size):
            raise invalid(f"there is no task {asked.index} in the split {asked.split!r}")
        return await self._task(asked.split, asked.index)

    async def _task(self, split: str, index: int) -> dict[str, Any]:
        return task_data(await EnvDriver(self.env).task(split, index))

"""The environment: a session of a server that speaks OpenEnv's protocol."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
from pydantic import Field

from agentrl.env import Adapter, Context, EnvConfig, Limits, Message, Reply, Task, Tool, Turn, reward, shared
from agentrl.errors import ConfigError
from agentrl.types import Signal, ToolSpec
from agentrl_openenv.actions import action_of, chat_of, is_tools, messages_of, request, shown, speaks
from agentrl_openenv.servers import Folder, Servers, serving
from agentrl_openenv.splits import Split, splits_of
from agentrl_openenv.wire import Observation, ServerError, Session, UnreachableError, asks_proxy

TEST_TASKS = 100
SETUP_S = 600.0


class OpenEnvConfig(EnvConfig):
    """The `--env.*` keys."""

    turns: int = Field(30, ge=1, description="turns of one episode")
    rules: str = Field("", description="first message; '' uses the server's own description")
    unreadable: float = Field(0.0, le=0, description="reward of a turn whose action the server rejects")
    timeout_s: float = Field(60.0, gt=0, le=3600, description="longest wait for an answer of the server")
    wait_s: float = Field(300.0, gt=0, lt=SETUP_S, description="longest wait for a session of a full server")
    servers: int = Field(1, ge=1, description="servers that each rollout worker starts, if a folder is named")
    python_path: str = Field("", description="interpreter of a folder's servers; '' uses its .venv, or this one")
    start_s: float = Field(120.0, gt=0, lt=SETUP_S, description="longest wait for a server to start")


@dataclass(frozen=True, slots=True)
class About:
    """What a server says about itself: its description, the JSON schema of its actions, its tools and splits."""

    description: str
    action: Mapping[str, Any]
    splits: Mapping[str, Split] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()


class OpenEnv(Adapter):
    """Act in an environment on a server of OpenEnv; the reward is the sum of the server's rewards."""

    Config = OpenEnvConfig
    config: OpenEnvConfig
    limits = Limits(max_turns=30, setup_timeout_s=SETUP_S, turn_timeout_s=120, tool_timeout_s=120)

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.limits = replace(self.limits, max_turns=self.config.turns)

    @classmethod
    def bound(cls, name: str) -> type[Self]:
        """Return the class of the server at the URL `name`, or of those of the folder `name`."""
        if name.startswith(("http://", "https://")):
            return cls.subclass(name.rstrip("/"))
        path = Path(name).expanduser().absolute()
        if not path.is_dir():
            raise ConfigError(
                f"openenv:{name} is neither an address nor a folder: write openenv:http://127.0.0.1:8000, or "
                "openenv:./my_env for a folder with an openenv.yaml"
            )
        return cls.subclass(str(path), wraps=(str(path),))

    def preflight(self) -> str:
        """Ask the server for its name, or check the folder. Raises ConfigError if there is none."""
        if not self._is_remote:
            folder = self._folder
            folder.check()
            return f"{self.config.servers} OpenEnv servers of {folder.app} per worker, run by {folder.python}."
        try:
            with httpx.Client(timeout=self.config.timeout_s, trust_env=asks_proxy(self.id)) as client:
                client.get(f"{self.id}/health").raise_for_status()
                answer = client.get(f"{self.id}/metadata")
            about = answer.json() if answer.is_success else {}
            name = f"{about.get('name', '')} {about.get('version') or ''}".strip()
        except (httpx.HTTPError, ValueError, AttributeError, RecursionError) as error:
            raise ConfigError(f"openenv:{self.id} does not answer: {error}; start the server") from error
        return f"OpenEnv server at {self.id}{f': {name}' if name else ''}."

    @shared
    @asynccontextmanager
    async def started(self) -> AsyncIterator[Servers | None]:
        """Start the servers of the folder, and end them with this process; None for an address."""
        if self._is_remote:
            yield None
            return
        async with serving(self._folder, self.config.servers, self.config.start_s) as servers:
            yield servers

    @shared
    async def about(self) -> About:
        """Ask the server what it is, and for the tools if its actions are calls."""
        url = (await self._urls())[0]
        async with httpx.AsyncClient(base_url=url, timeout=self.config.timeout_s, trust_env=asks_proxy(url)) as client:
            try:
                schema = (await client.get("/schema")).raise_for_status().json()
                answer = await client.get("/metadata")
                description = str(answer.json().get("description") or "") if answer.is_success else ""
                action = dict(schema["action"])
                splits = await splits_of(client)
            except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise ServerError(f"{url} does not describe itself as OpenEnv does: {error!r}") from error
        return About(description, action, splits, await self._tools() if is_tools(action) else ())

    def tasks(self, split: str) -> list[Task] | Callable[[random.Random], Task]:
        """Return the tasks of the server's split; without one, endless even seeds, and a hundred odd ones for "test".

        Raises ConfigError if the server has splits but not this one.
        """
        splits = self.about.splits
        if splits and split not in splits:
            known = ", ".join(one.name for one in splits.values())
            raise ConfigError(f"openenv:{self.id} has no tasks for {split!r}, only the splits {known}")
        chosen = splits.get(split)
        if chosen and chosen.size is not None:
            return [Task(f"{chosen.name}/{i}", {"split": chosen.name, "index": i}) for i in range(chosen.size)]
        named = {"split": chosen.name} if chosen else {}
        if split == "test":
            return [seeded(2 * number + 1, named) for number in range(TEST_TASKS)]
        return lambda rng: seeded(2 * rng.getrandbits(30), named)

    def tools(self, ctx: Context) -> list[Tool]:
        """Return the tools of the server."""
        return [Tool(spec, partial(self._use, ctx, spec["name"]), silence="infra") for spec in self.about.tools]

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Begin a session with the task, and show the first observation."""
        ctx.state.fines, ctx.state.is_over, ctx.state.news = 0.0, False, []
        ctx.state.session, first = await self._session(task.data)
        ctx.state.rewards = [first.reward]
        if first.is_done:
            raise ServerError(f"openenv:{self.id}: the episode of {task.data} is over after its reset")
        if chat := chat_of(first.content):  # it says what to do
            rules = [Message(role="user", content=self.config.rules)] if self.config.rules else []
            return [*rules, *chat]
        parts = [self.config.rules or self.about.description, request(self.about.action), shown(first.content)]
        return [Message(role="user", content="\n\n".join(filter(None, parts)))]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Send the action that the text expresses. Tools have acted already."""
        if turn.results:
            news, ctx.state.news = tuple(ctx.state.news), []
            return Reply(news, done=ctx.state.is_over)
        if not speaks(self.about.action):
            return Reply.end()
        action = action_of(self.about.action, turn.text)
        seen = await self._step(action, ctx) if action is not None else Observation(problem="no action found")
        if seen.problem:
            ctx.state.fines += self.config.unreadable
            return Reply.say(f"Invalid: {seen.problem}. {request(self.about.action)}".rstrip())
        return Reply.end() if seen.is_done else Reply(tuple(messages_of(seen.content)), done=False)

    @reward
    async def episode_return(self, ctx: Context) -> float | Signal:
        """Return the sum of the server's rewards, and of `unreadable` for each rejected turn.

        An episode that the server ended without any reward is invalid. Ends the session.
        """
        await ctx.state.session.end()
        rewards = [reward for reward in ctx.state.rewards if reward is not None]
        if ctx.state.is_over and not rewards:
            steps = len(ctx.state.rewards) - 1
            return Signal.invalid("episode_return", f"no answer of the server has a reward (steps: {steps})")
        return float(sum(rewards) + ctx.state.fines)

    async def teardown(self, ctx: Context) -> None:
        """End the session."""
        if session := getattr(ctx.state, "session", None):
            await session.close()

    @property
    def _is_remote(self) -> bool:
        return self.id.startswith(("http://", "https://"))

    @property
    def _folder(self) -> Folder:
        return Folder.read(Path(self.id), self.config.python_path)

    async def _urls(self, gone: Sequence[str] = ()) -> Sequence[str]:
        """Return the addresses of the servers. Those of the folder that have ended are started again."""
        return [self.id] if self.started is None else await self.started.urls(gone)

    async def _session(self, task: Mapping[str, Any]) -> tuple[Session, Observation]:
        begin = partial(Session.begin, task=task, timeout_s=self.config.timeout_s, wait_s=self.config.wait_s)
        urls = await self._urls()
        try:
            return await begin(urls)
        except UnreachableError:
            if self._is_remote:
                raise
            return await begin(await self._urls(gone=urls))

    async def _tools(self) -> tuple[ToolSpec, ...]:
        session, _ = await self._session({"seed": 0})
        try:
            seen = await session.call("step", {"type": "list_tools"})
        finally:
            await session.close()
        try:
            return tuple(
                ToolSpec(name=t["name"], description=t.get("description") or "", parameters=t["input_schema"])
                for t in seen.content["tools"]
            )
        except (KeyError, TypeError, AttributeError) as error:
            said = seen.problem or str(seen.content)[:200]
            raise ServerError(f"openenv:{self.id} lists no tools as OpenEnv does: {said}") from error

    async def _use(self, ctx: Context, tool_name: str, /, **arguments: Any) -> str:
        if ctx.state.is_over:
            return "The episode is over."
        seen = await self._step({"type": "call_tool", "tool_name": tool_name, "arguments": arguments}, ctx)
        if seen.problem:
            return f"Invalid: {seen.problem}"
        ctx.state.news += chat_of(seen.content) or ()
        fault = seen.content.get("error")
        return f"Error: {fault}" if fault else shown({"result": seen.content.get("result")})

    async def _step(self, action: Mapping[str, Any], ctx: Context) -> Observation:
        seen: Observation = await ctx.state.session.call("step", action)
        if not seen.problem:
            ctx.state.rewards.append(seen.reward)
        ctx.state.is_over = seen.is_done
        return seen


def seeded(seed: int, named: Mapping[str, str]) -> Task:
    """Return the episode of a split, if one is named, that begins with this seed."""
    return Task(str(seed), {**named, "seed": seed})

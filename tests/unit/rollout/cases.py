"""Environments and engines for the tests of episodes and workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.endpoint import Endpoint, Model
from agentrl.env.agent import AgentEnv
from agentrl.env.base import Env
from agentrl.env.config import EnvConfig, Limits
from agentrl.env.context import Context, Episode, Reply, Turn
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.rewards import reward
from agentrl.env.sharing import shared
from agentrl.env.tasks import Task, Tasks
from agentrl.env.tools import tool
from agentrl.rollout.episode import EpisodeRuntime
from agentrl.rollout.renderer import load_renderer
from agentrl.types import Completion, EpisodeRequest, EpisodeSettings, Message, Prompt, SampleId, Sampling, Trajectory
from tests.unit.rollout.templates import tokenizer

HASTE_S = 0.75
SETTINGS = EpisodeSettings(1.0, 12, 0, 20.0, 10.0)


class InfraError(Exception):
    """What a package outside raises when a service it needs is down."""

    fault = "infra"


class Chat(Env):
    """Asks `turns` times; worth the number of letters said. `fault` names where it goes wrong, and `how`."""

    class Config(EnvConfig):
        """Keys."""

        turns: int = 3
        fault: str = ""
        how: str = "raise"

    limits = Limits(max_turns=8)
    blocking = False
    torn_down: list[int] = []  # noqa: RUF012 (shared on purpose: who was torn down)
    reached: asyncio.Event | None = None

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(1000)]

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await self.trip("setup")
        return [{"role": "user", "content": f"task {task.data}, dice {ctx.rng.random():.9f}"}]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        await self.trip("respond")
        if turn.results:
            return Reply.go_on()
        return Reply.end() if turn.index + 1 >= self.config.turns else Reply.say(f"more, {ctx.rng.random():.9f}")

    async def score(self, ctx: Context) -> float:
        await self.trip("score")
        return float(len(ctx.text))

    async def teardown(self, ctx: Context) -> None:
        self.torn_down.append(ctx.member)
        await self.trip("teardown")

    @tool
    async def double(self, number: int) -> int:
        """Twice the number."""
        await self.trip("tool")
        return 2 * number

    async def trip(self, place: str) -> None:
        if self.config.fault != place:
            return
        if self.reached is not None:
            self.reached.set()
        match self.config.how:
            case "raise":
                raise KeyError("tripped")
            case "infra":
                raise InfraError("the service is down")
            case "cancel":
                raise asyncio.CancelledError
            case "hang":
                await asyncio.Event().wait()


class Pooled(Chat):
    """Whose episodes share something that must be closed."""

    open_pools: list[str] = []  # noqa: RUF012 (shared on purpose)

    @shared
    @asynccontextmanager
    async def pool(self) -> AsyncIterator[str]:
        self.open_pools.append("pool")
        yield "pool"
        self.open_pools.remove("pool")


class Hasty(Chat):
    """Whose every wait is short."""

    limits = Limits(
        max_turns=8, setup_timeout_s=HASTE_S, turn_timeout_s=HASTE_S, tool_timeout_s=HASTE_S,
        score_timeout_s=HASTE_S, teardown_timeout_s=HASTE_S,
    )  # fmt: skip


class Timed(Chat):
    """Where time is part of the task."""

    limits = Limits(max_turns=8, is_timed=True)


def ranks(episodes: list[Episode]) -> list[float]:
    """For each episode the number of those with a shorter answer."""
    return [sum(len(other.text) < len(episode.text) for other in episodes) for episode in episodes]


class Ranked(Chat):
    """Whose reward compares the members of a group."""

    @reward(weight=2.0, scope="group")
    async def rank(self, episodes: list[Episode]) -> list[float]:
        await self.trip("rank")
        return ranks(episodes)


class RankedAgent(AgentEnv):
    """An agent that asks once, and the rewards of Ranked."""

    blocking = False

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(10)]

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        return await model.client.chat.completions.create(
            model=model.name, messages=[{"role": "user", "content": "hello"}]
        )

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.text))

    @reward(weight=2.0, scope="group")
    def rank(self, episodes: list[Episode]) -> list[float]:
        return ranks(episodes)


@dataclass
class Listening:
    """A client of one engine that remembers what it was asked and what was answered."""

    engine: Any
    calls: list[tuple[Prompt, Sampling, Completion]] = field(default_factory=list)
    keys: list[Hashable] = field(default_factory=list)

    async def generate(
        self, prompt: Prompt, sampling: Sampling, deadline_s: float, key: Hashable | None = None
    ) -> Completion:
        completion = await self.engine.generate(prompt, sampling, deadline_s)
        self.calls.append((prompt, sampling, completion))
        self.keys.append(key)
        return completion  # type: ignore[no-any-return]


def request(member: int = 0, **changes: Any) -> EpisodeRequest:
    """A request with everyday values; `changes` are fields of the request or its settings."""
    settings = {name: changes.pop(name) for name in SETTINGS.__slots__ if name in changes}
    everyday = EpisodeRequest(SampleId(0, member), 0, "train", 7, 11, replace(SETTINGS, **settings))
    return replace(everyday, **changes)


def stage(
    engine: Any,  # of its own kind, or Listening
    env: Callable[..., Env] = Chat,
    max_context: int = 4000,
    made: Any = None,
    **options: Any,
) -> EpisodeRuntime:
    """A stage with the tiny tokenizer (or `made`) and `env(**options)`."""
    heard = engine if isinstance(engine, Listening) else Listening(engine)
    return EpisodeRuntime(
        lambda max_turns: EnvDriver(env(**options), max_turns),
        load_renderer(made or tokenizer()),
        heard,
        max_context,
        Endpoint(max_context),
    )


def check_law_1(trajectory: Trajectory, calls: list[tuple[Prompt, Sampling, Completion]]) -> None:
    """Each completion is one action segment, behind exactly the ids the engine was given; nothing else is an action."""
    actions = []
    for sequence in trajectory.sequences:
        before: tuple[int, ...] = ()
        for segment in sequence.segments:
            if segment.is_action:
                actions.append((before, segment.ids, segment.logprobs, segment.versions))
            before += segment.ids
    assert actions == [(prompt.ids, c.ids, c.logprobs, c.versions) for prompt, _, c in calls]
    for sequence in trajectory.sequences:
        assert len(sequence.ids) == len(sequence.mask) == len(sequence.logprobs) == len(sequence.versions)
        assert [v is not None for v in sequence.versions] == [m == 1 for m in sequence.mask]

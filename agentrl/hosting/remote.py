"""Environments of other processes, with the interface of those of this one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.endpoint import Ask, Endpoint, Responder, Tokens
from agentrl.env import Episode, Start, StepResult, Task
from agentrl.errors import ConfigError, WorkerLostError
from agentrl.hosting.link import Connect, Link
from agentrl.hosting.tokens import described
from agentrl.hosting.wire import EnvFacts, converted, read, reply_of, signals_of, start_of, step_of, uses_of
from agentrl.roles import Asked, Casting, RoleReply
from agentrl.types import Message, RoleUse, Signal, StopReason


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The `data` of a task whose real data is at the other side: the seed of its split."""

    seed: int


class RemoteEnv:
    """An environment in another process, which is connected when it is first needed.

    A lost connection is made again up to `restarts` times, to the same environment; the episodes that it had end with
    an error of the infrastructure, and run again as other lost samples do.
    """

    def __init__(self, connect: Connect, name: str, options: Mapping[str, Any], restarts: int) -> None:
        self._connect, self._name, self._options = connect, name, options
        self._restarts, self._deaths, self._why = restarts, 0, ""
        self._opening: asyncio.Task[Link] | None = None
        self._facts: EnvFacts | None = None
        self._castings: Mapping[str, Casting] | None = None

    def cast(self, castings: Mapping[str, Casting]) -> None:
        """Let models play the roles of the environment, from the next connection on."""
        self._castings = castings

    async def link(self) -> Link:
        """Return the connection. Raises WorkerLostError if it was lost too often."""
        opening = self._opening
        if opening is None or _is_lost(opening):
            opening = self._opening = asyncio.ensure_future(self._open(opening))
            opening.add_done_callback(_is_lost)  # which reads the error, even if no caller waits any more
        return await asyncio.shield(opening)

    async def _open(self, before: asyncio.Task[Link] | None) -> Link:
        """Connect, after the connection `before` was lost or could not be made."""
        is_refused = before is not None and not before.cancelled() and isinstance(before.exception(), ConfigError)
        if before is not None and not is_refused and self._deaths <= self._restarts:
            self._why = await _end(before)
            self._deaths += 1
        if self._deaths > self._restarts:
            times = "once" if self._deaths == 1 else f"{self._deaths} times"
            most = f"engine.restarts = {self._restarts}"
            raise WorkerLostError(f"environment {self._name} was lost {times} ({most}); the last: {self._why}")
        link = await Link.open(self._connect, self._name, self._options, self._castings)
        self._facts = self._facts or link.facts
        if link.facts != self._facts:
            await link.close()
            raise ConfigError(
                f"environment {self._name} is not the one that this run began with: its source or its keys have "
                "changed; bring them back, or begin another run"
            )
        return link

    def driver(self, max_turns: int = 0) -> RemoteDriver:
        """Return a driver of one episode."""
        return RemoteDriver(self, max_turns)

    async def facts(self) -> EnvFacts:
        """Return what a worker should know."""
        return (await self.link()).facts

    async def close(self) -> None:
        """End the connection, after the other side has torn its episodes down. Idempotent."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
            await _end(opening)


def _is_lost(opening: asyncio.Task[Link]) -> bool:
    return opening.done() and (
        opening.cancelled() or opening.exception() is not None or bool(opening.result().peer.lost)
    )


async def _end(opening: asyncio.Task[Link]) -> str:
    """Close a connection if it was made; returns how it ended."""
    if opening.cancelled():
        return "it was given up"
    if error := opening.exception():
        return str(error)
    link = opening.result()
    await link.close()
    return link.peer.lost


class RemoteDriver:
    """Drives one episode of a RemoteEnv; the interface is that of `EnvDriver`."""

    def __init__(self, env: RemoteEnv, max_turns: int) -> None:
        self._env, self._max_turns = env, max_turns
        self._link: Link | None = None
        self._episode = -1
        self._uses: dict[str, RoleUse] = {}

    @property
    def name(self) -> str:
        """The name of the author's class."""
        return self._facts.name

    @property
    def max_turns(self) -> int:
        """Turns that an episode may have."""
        return self._max_turns or self._facts.max_turns

    @property
    def is_agent(self) -> bool:
        """True if the author's agent drives the episode."""
        return self._facts.is_agent

    @property
    def roles(self) -> Mapping[str, Asked]:
        """The roles, as the agent of the episode asks them."""
        return {role: RemoteRole(self, role) for role in self._facts.roles}

    @property
    def role_uses(self) -> dict[str, RoleUse]:
        """What was asked of each role: known once the episode is closed, or its group is scored."""
        return self._uses

    async def ask_role(self, role: str, ask: Ask) -> RoleReply:
        """Ask a role for the agent."""
        return reply_of(await self._call("ask_role", role=role, ask=ask))

    async def size(self, split: str, seed: int = 0) -> int | None:
        """Number of tasks of a split; None if they are endless."""
        return converted(await (await self._linked()).peer.call("size", split=split, seed=seed), int | None)  # type: ignore[arg-type]

    async def task(self, split: str, index: int, seed: int = 0) -> Task:
        """Return the task at `index`, without its data."""
        link = await self._linked()
        found = await link.peer.call("task", split=split, index=index, seed=seed)
        return Task(str(found), TaskRef(seed), split, index)

    async def reset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """Begin an episode in step mode; return its first messages."""
        return start_of(await self._begin("reset", task, seed=seed, member=member, deadline_s=deadline_s))

    async def begin(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> None:
        """Begin an episode in agent mode."""
        await self._begin("begin", task, seed=seed, member=member, deadline_s=deadline_s)

    async def step(self, turn: Message | str) -> StepResult:
        """Take the assistant's turn."""
        return step_of(await self._call("step", turn=turn))

    async def accompany(self, endpoint: Endpoint, responder: Responder, tokens: Tokens) -> None:  # noqa: ARG002 (its own)
        """Let the agent play. It calls an endpoint beside it, whose calls `responder` answers."""
        link = await self._linked()
        link.accompany(self._episode, responder, tokens)
        try:
            await self._call("play", tokens=described(tokens))
        finally:
            link.leave(self._episode)

    async def take(self, messages: Sequence[Message], turn: Message, agent: str = "") -> tuple[Signal, ...]:
        """Take a turn that the agent asked for after new `messages`, and score it."""
        return signals_of(await self._call("take", messages=list(messages), turn=turn, agent=agent))

    async def finish(self, stop_reason: StopReason) -> tuple[Signal, ...]:
        """Score the episode."""
        return signals_of(await self._call("finish", stop_reason=stop_reason))

    async def success(self) -> Signal | None:
        """Result of the environment's own `success`; None if the rewards decide instead."""
        found = await self._call("success")
        return found and converted(found, Signal)

    async def score_group(self, episodes: Sequence[Episode]) -> tuple[tuple[Signal, ...], ...]:
        """Return the group rewards of each finished episode of one group."""
        task = episodes[0].task
        sent = [
            {"member": one.member, "messages": one.messages, "signals": one.signals, "stop_reason": one.stop_reason}
            for one in episodes
        ]
        link = await self._linked()
        try:
            found = await link.peer.call("score_group", task=_ref(task), episodes=sent)
        except WorkerLostError:  # it needs nothing that the lost process had
            found = await (await self._env.link()).peer.call("score_group", task=_ref(task), episodes=sent)
        self._uses = read(lambda: uses_of(found["roles"]))
        return read(lambda: tuple(signals_of(row) for row in found["rows"]))

    async def close(self) -> None:
        """Tear the episode down. Idempotent; an episode whose process is lost has ended with it."""
        if self._link is not None and self._episode >= 0 and not self._link.peer.lost:
            episode, self._episode = self._episode, -1
            try:
                await self._link.peer.call("close", episode=episode)
            finally:
                if self._facts.roles and not self._link.peer.lost:
                    self._uses = uses_of(await self._link.peer.call("uses", episode=episode))

    async def _begin(self, method: str, task: Task, **more: Any) -> Any:
        link = await self._linked()
        self._episode = next(link.episodes)
        return await self._call(method, max_turns=self._max_turns, task=_ref(task), **more)

    async def _call(self, method: str, **arguments: Any) -> Any:
        return await (await self._linked()).peer.call(method, episode=self._episode, **arguments)

    async def _linked(self) -> Link:
        """Return the connection of the episode, which keeps the one with which it began."""
        if self._link is None:
            self._link = await self._env.link()
        return self._link

    @property
    def _facts(self) -> EnvFacts:
        assert self._link is not None, "the episode's task was asked for first"
        return self._link.facts


@dataclass(frozen=True, slots=True)
class RemoteRole:
    """A role of an episode at the other side, which counts and limits its calls."""

    driver: RemoteDriver
    role: str

    async def answer(self, ask: Ask) -> RoleReply:
        """Return the reply to one call; see `Role`."""
        return await self.driver.ask_role(self.role, ask)


def _ref(task: Task) -> dict[str, Any]:
    return {"split": task.split, "index": task.index, "seed": task.data.seed}

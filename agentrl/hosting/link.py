"""Link: a connection to the process of an environment, watched as long as it lasts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Protocol

from agentrl.endpoint import Answer, Responder, Tokens
from agentrl.errors import DeadlineError, WorkerLostError
from agentrl.hosting.channel import Channel
from agentrl.hosting.peer import Peer
from agentrl.hosting.wire import PROTOCOL, EnvFacts, ProtocolError, ask_of, converted, limits_of, reply_of
from agentrl.roles import Casting

OPEN_S = 300.0
PING_S, SILENCE_S = 10.0, 120.0
"""How often the other side is asked whether it runs, and how long it may take to answer."""


class Connection(Protocol):
    """What a link is made over: a process, or a socket to another machine."""

    @property
    def channel(self) -> Channel:
        """The channel to the other side."""

    async def ended(self) -> str:
        """Return how the connection ended, after its channel has."""

    async def close(self) -> None:
        """End the connection. Idempotent."""

    def kill(self) -> None:
        """End the connection at once."""


Connect = Callable[[], Awaitable[Connection]]


class Link:
    """One connection to an environment. If it is lost, all its calls raise WorkerLostError."""

    def __init__(self, connection: Connection, castings: Mapping[str, Casting]) -> None:
        self._connection, self._castings = connection, castings
        self.peer = Peer(connection.channel, self._served)
        self.facts: EnvFacts
        self.episodes = count()
        self._agents: dict[int, Agent] = {}
        self._running = asyncio.create_task(self.peer.run(connection.ended))
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, connect: Connect, name: str, options: Mapping[str, Any], castings: Mapping[str, Casting] | None = None
    ) -> Link:
        """Connect, and choose the environment. Raises ConfigError for what it refuses, WorkerLostError if it ends.

        `castings` are the roles that models of this side play; without any, stand-ins of the environment play them.
        """
        link = cls(await connect(), castings or {})
        sent = json.loads(json.dumps(dict(options), default=str))
        roles = None if castings is None else {role: limits_of(casting) for role, casting in castings.items()}
        try:
            async with asyncio.timeout(OPEN_S):
                facts = await link.peer.call("open", protocol=PROTOCOL, name=name, options=sent, roles=roles)
            link.facts = converted(facts, EnvFacts)
        except TimeoutError:
            await link.close()
            raise DeadlineError(f"environment {name}: its process did not begin within {OPEN_S:g} s") from None
        except BaseException:
            await link.close()
            raise
        link._watching = asyncio.create_task(link._watch())
        return link

    async def close(self) -> None:
        """Let the other side tear its episodes down, and end the connection. Idempotent."""
        await self._connection.close()
        tasks = {self._running}
        if self._watching is not None:
            self._watching.cancel()
            tasks.add(self._watching)
        await asyncio.wait(tasks)

    def accompany(self, episode: int, agent: Responder, tokens: Tokens) -> None:
        """Answer the calls of an episode's agent from now on, until `leave`."""
        self._agents[episode] = Agent(agent, tokens)

    def leave(self, episode: int) -> None:
        """Refuse further calls of an episode's agent."""
        self._agents.pop(episode, None)

    async def _watch(self) -> None:
        """Kill a process whose event loop is blocked: nobody else would notice it."""
        while not self.peer.lost:
            await asyncio.sleep(PING_S)
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self.peer.call("ping")
            except TimeoutError:
                self._connection.kill()
            except WorkerLostError:
                return

    async def _served(self, method: str, arguments: dict[str, Any]) -> Any:
        match method, arguments:
            case "play_role", {"role": str(role), "ask": ask, "seed": int(seed)} if role in self._castings:
                return await self._castings[role].player.answer(ask_of(ask), seed)
            case "keep_reply", {"role": str(role), "reply": reply} if role in self._castings:
                return await self._castings[role].player.keep(reply_of(reply))
            case (("answer" | "count" | "deliver" | "generate"), {"episode": int(episode), **more}):
                if agent := self._agents.get(episode):
                    return await agent.calls[method](**more)
                raise WorkerLostError(f"episode {episode} has ended")
        raise ProtocolError(f"a worker has no call {method!r}")


class Agent:
    """The calls of one episode's agent, which runs at the other side."""

    def __init__(self, responder: Responder, tokens: Tokens) -> None:
        self._responder, self._tokens = responder, tokens
        self._answers: dict[str, Answer] = {}
        self.calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "answer": self.answer, "count": self.count, "deliver": self.deliver, "generate": self.generate,
        }  # fmt: skip

    async def answer(self, ask: Any) -> Answer:
        """Answer a call; see `agentrl.endpoint.Responder`."""
        answer = await self._responder.answer(ask_of(ask))
        self._answers[answer.id] = answer
        return answer

    async def count(self, ask: Any) -> int:
        """Return the number of tokens of a request's prompt."""
        return await self._responder.count(ask_of(ask))

    async def deliver(self, answer: str) -> None:
        """Record an answer that a client is about to receive."""
        await self._responder.deliver(self._answers[answer], lambda: True)

    async def generate(self, ids: list[int], max_tokens: int | None, stop: list[str]) -> Any:
        """Sample a continuation of token ids."""
        return await self._tokens.generate(ids, max_tokens, stop)

"""The side of a connection that has the environment: it drives its episodes as a worker would."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from agentrl import __version__
from agentrl.endpoint import Answer, Ask, Endpoint, Responder
from agentrl.env import Env, EnvConfig, EnvDriver, Task, env_config, resolve
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.env.roles import roles_of
from agentrl.errors import ConfigError, EnvError
from agentrl.hosting.channel import Channel
from agentrl.hosting.inspection import inspect, make
from agentrl.hosting.peer import Peer
from agentrl.hosting.tokens import tokens_of
from agentrl.hosting.wire import PROTOCOL, EnvFacts, answer_of, ask_of, casting_of, episode_of, reply_of
from agentrl.records.manifest import hash_source, interpreter, source_path
from agentrl.roles import Casting, Player, RoleReply
from agentrl.types import RoleUse, StopReason


@dataclass(frozen=True)
class HostedEnv:
    """An environment of this process."""

    name: str
    options: Mapping[str, Any]
    kind: type[Env]
    config: EnvConfig

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> HostedEnv:
        """Return the environment called `name` with its `--env.*` keys. Raises ConfigError."""
        kind = resolve(name)
        return cls(name, options, kind, env_config(kind, options))

    def driver(self, max_turns: int = 0, castings: Mapping[str, Casting] = MappingProxyType({})) -> EnvDriver:
        """Return a driver of a new object, with the models that play its roles."""
        return EnvDriver(self.kind(self.config), max_turns, castings)

    @property
    def roles(self) -> set[str]:
        """The names of the roles that it asks."""
        return set(roles_of(self.kind))

    async def facts(self) -> EnvFacts:
        """Return what a worker should know. Raises ConfigError if no object can be made."""
        driver, name = EnvDriver(make(self.name, self.options)), self.kind.__name__
        return EnvFacts(name, driver.is_agent, driver.max_turns, driver.has_group_rewards, tuple(sorted(self.roles)))

    @cached_property
    def digest(self) -> str:
        """One sha256 for its source, as it is when this is first read, and for its keys."""
        source = hash_source(source_path(self.name, self.kind))
        keys = json.dumps(_ordered(self.config.model_dump()))
        return hashlib.sha256(f"{source} {keys}".encode()).hexdigest()

    async def close(self) -> None:
        """Do nothing: the process closes what its environments share when it ends."""


def _ordered(value: Any) -> Any:
    """Return a value of a key as lists and text; the order of a set differs between processes."""
    if isinstance(value, Mapping):
        return sorted([str(key), _ordered(item)] for key, item in value.items())
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return list(map(_ordered, value)) if isinstance(value, list | tuple) else str(value)


Opener = Callable[[str, Mapping[str, Any]], HostedEnv]
"""Returns the environment that a connection asks for by (name, options). Raises ConfigError."""


class Host:
    """Serves one connection: the episodes of one worker in one environment."""

    def __init__(self, channel: Channel, opener: Opener, note_end: Callable[[], None] = lambda: None) -> None:
        self._note_end = note_end
        self._peer = Peer(channel, self._served)
        self._opener = opener
        self._env: HostedEnv | None = None
        self._drivers: dict[int, EnvDriver] = {}
        self._uses: dict[int, dict[str, RoleUse]] = {}
        self._endpoint: Endpoint | None = None
        self._castings: Mapping[str, Casting] = MappingProxyType({})
        calls: tuple[Callable[..., Awaitable[Any]], ...] = (
            self.open, self.inspect, self.ping, self.size, self.task, self.score_group,
            self.reset, self.begin, self.step, self.play, self.take, self.ask_role, self.finish,
            self.success, self.close, self.uses,
        )  # fmt: skip
        self._calls = {call.__name__: call for call in calls}

    async def run(self) -> None:
        """Serve until the connection ends, then tear the open episodes down."""
        try:
            await self._peer.run(self._ended)
        finally:
            await asyncio.gather(*(driver.close() for driver in self._drivers.values()), return_exceptions=True)
            if self._endpoint is not None:
                await self._endpoint.close()

    async def _ended(self) -> str:
        self._note_end()
        return "the worker has closed the connection"

    async def _served(self, method: str, arguments: dict[str, Any]) -> Any:
        if method not in self._calls:
            raise ConfigError(f"this environment's process has no call {method!r}")
        if method != "open" and self._env is None:
            raise ConfigError(f"{method!r} comes before `open`")
        return await self._calls[method](**arguments)

    # --- the environment ------------------------------------------------------------------------------------------

    async def open(
        self, protocol: int, name: str, options: dict[str, Any], roles: dict[str, Any] | None = None, **_: Any
    ) -> EnvFacts:
        """Choose the environment of this connection, and the roles that models of the worker play.

        Other arguments are those of another version, which is refused.
        """
        if protocol != PROTOCOL:
            raise ConfigError(
                f"protocol {protocol} of the worker is not {PROTOCOL} of agentrl {__version__} here: install the same "
                "version on both machines"
            )
        if self._env is not None:
            raise ConfigError("this connection has an environment already: `open` comes once, and first")
        self._env = self._opener(name, options)
        if roles is not None:
            check_played(self._env, roles)
            self._castings = {role: casting_of(PeerPlayer(self._peer, role), limits) for role, limits in roles.items()}
        return replace(await self._env.facts(), digest=self._env.digest)

    async def ping(self) -> None:
        """Answer, which shows that the event loop runs."""

    async def inspect(self, splits: list[str], seed: int, max_turns: int, has_reward_models: bool) -> dict[str, Any]:
        """Check the environment before a run, in processes of their own."""
        env = self._hosted
        request = DryRunRequest(env.name, dict(env.options), splits, seed, max_turns)
        found = await asyncio.to_thread(inspect, request, has_reward_models)
        source = replace(await asyncio.to_thread(found.source), interpreter=interpreter())
        facts = {"notes": found.notes, "prompt": found.prompt, "roles": found.roles, "endless": found.endless}
        return facts | {"source": source}

    async def size(self, split: str, seed: int) -> int | None:
        """Return the number of tasks; None if they are endless."""
        return await self._hosted.driver().size(split, seed)

    async def task(self, split: str, index: int, seed: int) -> str:
        """Return the id of a task, which stays here."""
        return (await self._hosted.driver().task(split, index, seed)).id

    async def score_group(self, task: dict[str, Any], episodes: list[Any]) -> dict[str, Any]:
        """Score the finished episodes of one group."""
        driver = self._made()
        found = await self._task(driver, task)
        rows = await driver.score_group([episode_of(episode, found) for episode in episodes])
        return {"rows": rows, "roles": driver.role_uses}

    # --- an episode -----------------------------------------------------------------------------------------------

    async def reset(self, episode: int, max_turns: int, task: dict[str, Any], **more: Any) -> Any:
        """Begin an episode in step mode."""
        driver = self._begun(episode, max_turns)
        return await driver.reset(await self._task(driver, task), **more)

    async def begin(self, episode: int, max_turns: int, task: dict[str, Any], **more: Any) -> None:
        """Begin an episode in agent mode."""
        driver = self._begun(episode, max_turns)
        await driver.begin(await self._task(driver, task), **more)

    async def step(self, episode: int, turn: Any) -> Any:
        """Take the assistant's turn."""
        return await self._driver(episode).step(turn)

    async def play(self, episode: int, tokens: dict[str, Any]) -> None:
        """Let the agent play. Its calls come to an endpoint of this process, which asks the worker."""
        relay = Relay(self._peer, episode)
        if self._endpoint is None:
            self._endpoint = Endpoint(tokens["max_context"])
        async with self._endpoint.open(relay, tokens_of(self._peer, episode, tokens)) as model:
            await self._driver(episode).play(model)

    async def take(self, episode: int, messages: list[Any], turn: Any, agent: str) -> Any:
        """Take a turn of the agent."""
        return await self._driver(episode).take(messages, turn, agent)

    async def finish(self, episode: int, stop_reason: str) -> Any:
        """Score the episode."""
        return await self._driver(episode).finish(StopReason(stop_reason))

    async def success(self, episode: int) -> Any:
        """Return the environment's own verdict on success."""
        return await self._driver(episode).success()

    async def ask_role(self, episode: int, role: str, ask: Any) -> Any:
        """Ask a role for the agent of an episode."""
        return await self._driver(episode).roles[role].answer(ask_of(ask))

    async def close(self, episode: int) -> None:
        """Tear an episode down; one that has not begun is closed already."""
        if driver := self._drivers.pop(episode, None):
            try:
                await driver.close()
            finally:
                if driver.role_uses:
                    self._uses[episode] = driver.role_uses

    async def uses(self, episode: int) -> dict[str, RoleUse]:
        """Return what an episode, which is closed, asked of roles."""
        return self._uses.pop(episode, {})

    def _begun(self, episode: int, max_turns: int) -> EnvDriver:
        """Return the driver of a new episode. Raises ConfigError if its number is that of an open one."""
        if episode in self._drivers:
            raise ConfigError(f"episode {episode} is open already: close it, or begin one with another number")
        driver = self._drivers[episode] = self._made(max_turns)
        return driver

    def _made(self, max_turns: int = 0) -> EnvDriver:
        return self._hosted.driver(max_turns, self._castings)

    @property
    def _hosted(self) -> HostedEnv:
        assert self._env is not None, "`_served` has checked it"
        return self._env

    def _driver(self, episode: int) -> EnvDriver:
        if episode not in self._drivers:
            raise EnvError(f"episode {episode} is not open")
        return self._drivers[episode]

    @staticmethod
    async def _task(driver: EnvDriver, task: Mapping[str, Any]) -> Task:
        return await driver.task(task["split"], task["index"], task["seed"])


@dataclass(frozen=True, slots=True)
class PeerPlayer(Player):
    """Plays a role with a model of the worker."""

    peer: Peer
    role: str

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        """Return the reply to a conversation; see `Player`."""
        return reply_of(await self.peer.call("play_role", role=self.role, ask=ask, seed=seed))

    async def keep(self, reply: RoleReply) -> None:
        """Keep a reply; see `Player`."""
        await self.peer.call("keep_reply", role=self.role, reply=reply)


def check_played(env: HostedEnv, players: Collection[str]) -> None:
    """Raise ConfigError for a role that nobody plays."""
    if missing := ", ".join(sorted(env.roles - set(players))):
        raise ConfigError(f"{env.kind.__name__}: nobody plays {missing}: set roles.NAME.model")


class Relay(Responder):
    """Hands the calls of an episode's agent to the worker, which samples and records."""

    def __init__(self, peer: Peer, episode: int) -> None:
        self._peer, self._episode = peer, episode
        self._delivering = asyncio.Lock()

    async def answer(self, ask: Ask) -> Answer:
        """Answer a call; see `agentrl.endpoint.Responder`."""
        return answer_of(await self._peer.call("answer", episode=self._episode, ask=ask))

    async def count(self, ask: Ask) -> int:
        """Return the number of tokens of a request's prompt."""
        return int(await self._peer.call("count", episode=self._episode, ask=ask))

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:
        """Tell the worker that a client is about to receive the answer, once it has taken those before."""
        async with self._delivering:
            if is_wanted := is_awaited():
                await self._peer.call("deliver", episode=self._episode, answer=answer.id)
            return is_wanted

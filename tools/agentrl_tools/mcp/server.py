"""An MCP server as a toolset: started with the episode, asked for its tools, ended with the episode."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.env import BadCallError, Tool
from agentrl.env.driver.user_code import AuthorDeadlineError, within
from agentrl.errors import Caught, ConfigError, UnknownNameError
from agentrl.types import ToolSpec
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp.connection import Address, Connection, load

MOST_PLAYED = 64
"""Calls of an episode that are remembered, to be made again on a fresh server; more are too many to be made again."""
MOST_BREAKS = 3
"""How often a server is started anew for an episode whose calls end it."""
LEEWAY = 2
SPARE_S = 5.0
"""A call that was answered may take twice as long again, and five seconds."""
NEARLY = 0.5
"""Of its deadline, a call that ran until that has so much again: one that takes nearly as long is no accident."""
REPLAY_S = 60.0
"""What the calls before the last may take again together."""
BUSY_S, PAUSE_S = 60.0, 1.0
"""How long a URL is tried again after a call: that may still keep the server busy, or have it started anew."""


@dataclass(slots=True)
class Played:
    """One call of the episode, and how long it took."""

    tool: str
    arguments: dict[str, Any]
    took_s: float = 0.0
    is_cut: bool = False
    """It ran until its deadline."""

    @property
    def patience_s(self) -> float:
        """How long it may take again."""
        return NEARLY * self.took_s if self.is_cut else LEEWAY * self.took_s + SPARE_S


class McpServer(AbstractAsyncContextManager[list[Tool]]):
    """Offer the tools of one server, a command (stdio) or a URL (streamable HTTP).

    A process is this episode's own and is killed with its children at the end. What one of its tools says went wrong
    goes to the model. When a call ends the server, hangs or breaks the protocol, a fresh one is given the same calls:
    if the last of them breaks that too, or they are too many or last too long, and another fresh one lists its tools,
    the failure is the model's error and the episode goes on with the last; otherwise it is infrastructure
    (ServiceError, DeadlineError). `only` names the tools to offer (none named: all); `env` adds to the few variables a
    server inherits. Needs `pip install 'agentrl[mcp]'`.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        only: Collection[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        is_url = isinstance(server, str) and server.startswith(("http://", "https://"))
        self.url = str(server) if is_url else ""
        self.command = [] if is_url else split(server) if isinstance(server, str) else list(server)
        self.name = self.url or shlex.join(self.command)
        self.only, self.env, self.cwd = only, dict(env or {}), cwd
        if not self.name:
            raise ConfigError("McpServer: give a command or a URL")
        self._opened: list[Connection] = []
        self._played: deque[Played] = deque(maxlen=MOST_PLAYED + 1)
        self._breaks = 0

    def check(self) -> None:
        """ConfigError for what can be known to be missing before anything starts: the library, or the program."""
        load()
        path, folder = self.env.get("PATH"), self.cwd or Path()
        if self.command and not (shutil.which(self.command[0], path=path) or shutil.which(folder / self.command[0])):
            raise ConfigError(f"MCP server {self.name!r}: there is no program {self.command[0]!r}; install it")

    async def __aenter__(self) -> list[Tool]:
        """Start the server, and list its tools."""
        self._opened, self._breaks = [], 0
        self._played.clear()
        connection, specs = await self._open()
        try:
            return self._chosen(specs)
        except BaseException:
            await connection.close(patience_s=0)
            raise

    async def __aexit__(self, *_: object) -> None:
        """End the server. Idempotent, and bound by a deadline of its own."""
        for connection in self._opened:
            await connection.close()

    async def _open(self) -> tuple[Connection, list[ToolSpec]]:
        connection = Connection(Address(self.name, self.url, self.command, self.env, self.cwd))
        self._opened.append(connection)
        return connection, await connection.open()

    async def _afresh(self) -> Connection:
        """A fresh server after a call that broke one; ServiceError where there is none in time."""
        until = time.monotonic() + (BUSY_S if self.url else 0.0)
        while True:
            try:
                return (await self._open())[0]
            except ServiceError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(PAUSE_S)

    def _chosen(self, specs: list[ToolSpec]) -> list[Tool]:
        known = [spec["name"] for spec in specs]
        for name in self.only:
            if name not in known:
                raise UnknownNameError(f"tool of {self.name}", name, known)
        chosen = [spec for spec in specs if not self.only or spec["name"] in self.only]
        return [
            Tool(spec, partial(self._call, spec["name"]), silence="infra", blame=partial(self._blame, spec["name"]))
            for spec in chosen
        ]

    async def _call(self, tool: str, /, **arguments: Any) -> str:
        if self._breaks >= MOST_BREAKS:
            raise BadCallError(f"the server is gone: calls of this episode ended it {self._breaks} times")
        played, began = Played(tool, arguments), time.monotonic()
        self._played.append(played)
        try:
            return await self._opened[-1].call(tool, arguments)
        except asyncio.CancelledError:
            played.is_cut = True
            raise
        finally:
            played.took_s = time.monotonic() - began

    async def _blame(self, tool: str, /, **_: Any) -> str:
        """What the model is told of a call that broke the server, if it is proven that it did; else ''."""
        try:
            await self._opened[-1].close(patience_s=0)
            if not await self._breaks_again():
                return ""
            fresh = await self._afresh()
        except ServiceError:
            return ""
        self._played.clear()
        self._breaks += 1
        if self._breaks < MOST_BREAKS:
            return f"{tool!r} ended the server, or was not answered. The server was started anew, without what it held."
        await fresh.close()
        return f"{tool!r} ended the server, or was not answered, as did earlier calls. It is not started again."

    async def _breaks_again(self) -> bool:
        """Whether a fresh server takes all calls of the episode but the last, and breaks at that.

        True as well where they are too many, or last too long, for anybody to know.
        """
        if len(self._played) > MOST_PLAYED:
            return True
        fresh = await self._afresh()
        try:
            *before, last = self._played
            async with asyncio.timeout(REPLAY_S):
                for played in before:
                    if is_broken(await again(fresh, played)):
                        return False
            return is_broken(await again(fresh, last))
        except TimeoutError:
            return True
        finally:
            await fresh.close(patience_s=0)


async def again(fresh: Connection, played: Played) -> Caught:
    """Make a call once more."""
    return await within(fresh.call(played.tool, played.arguments), played.patience_s, f"{played.tool!r}, again")


def is_broken(outcome: Caught) -> bool:
    """Whether a call was not answered."""
    return isinstance(outcome.error, ServiceError | AuthorDeadlineError)


def split(command: str) -> list[str]:
    """The words of a command line."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"McpServer: {command!r} is no command line: {error}") from error

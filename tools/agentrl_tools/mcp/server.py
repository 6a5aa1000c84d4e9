"""An MCP server as a toolset that starts and ends with its episode."""

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

from agentrl.env import AuthorDeadlineError, BadCallError, Tool, within
from agentrl.errors import Caught, ConfigError, UnknownNameError
from agentrl.types import ToolSpec
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp.connection import Address, Connection, load

MAX_CALLS = 64
"""Calls of an episode that can be replayed on a fresh server; an episode with more calls is not replayed."""
MAX_BREAKS = 3
"""How many calls of an episode may break the server before it is not restarted any more."""
SLOWDOWN = 2
SPARE_S = 5.0
"""In a replay, a call may take SLOWDOWN times as long as before, plus SPARE_S."""
CUT_SHARE = 0.5
"""In a replay, a call that hit its deadline gets this share of it: if it takes that long again, it is no accident."""
REPLAY_S = 60.0
"""Time limit for replaying all calls before the last."""
BUSY_S, PAUSE_S = 60.0, 1.0
"""How long a URL is retried after a broken call, which may still keep the server busy or have restarted it."""


@dataclass(slots=True)
class Call:
    """One call of the episode and its duration."""

    tool: str
    arguments: dict[str, Any]
    took_s: float = 0.0
    is_cut: bool = False
    """True if the call hit its deadline."""

    @property
    def replay_timeout_s(self) -> float:
        """Time limit of the call in a replay."""
        return CUT_SHARE * self.took_s if self.is_cut else SLOWDOWN * self.took_s + SPARE_S


class McpServer(AbstractAsyncContextManager[list[Tool]]):
    """Toolset with the tools of one MCP server: a command (stdio) or a URL (streamable HTTP).

    A command gets its own process per episode, which is killed with its children at the end. Errors that a tool reports
    go to the model. If a call kills the server, hangs or violates the protocol, the calls are replayed on a fresh
    server. The failure is the model's error if the last call breaks that server too (or the replay has too many calls
    or takes too long) and another fresh server lists its tools; the episode continues with that one. Otherwise the
    failure is infrastructure (ServiceError, DeadlineError). `only` selects tools (default: all); `env` adds to the few
    variables that a server inherits. Needs `pip install 'agentrl-core[mcp]'`.
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
            raise ConfigError("McpServer: pass a command or a URL")
        self._opened: list[Connection] = []
        self._calls: deque[Call] = deque(maxlen=MAX_CALLS + 1)
        self._breaks = 0

    def check(self) -> None:
        """Raise ConfigError if the library or the program is missing; starts nothing."""
        load()
        path, folder = self.env.get("PATH"), self.cwd or Path()
        if self.command and not (shutil.which(self.command[0], path=path) or shutil.which(folder / self.command[0])):
            raise ConfigError(f"MCP server {self.name!r}: program {self.command[0]!r} not found; install it")

    async def __aenter__(self) -> list[Tool]:
        """Start the server and list its tools."""
        self._opened, self._breaks = [], 0
        self._calls.clear()
        connection, specs = await self._open()
        try:
            return self._chosen(specs)
        except BaseException:
            await connection.close(patience_s=0)
            raise

    async def __aexit__(self, *_: object) -> None:
        """End the server within a deadline. Idempotent."""
        for connection in self._opened:
            await connection.close()

    async def _open(self) -> tuple[Connection, list[ToolSpec]]:
        connection = Connection(Address(self.name, self.url, self.command, self.env, self.cwd))
        self._opened.append(connection)
        return connection, await connection.open()

    async def _afresh(self) -> Connection:
        """Open a fresh server after a broken call; ServiceError if none starts in time."""
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
        if self._breaks >= MAX_BREAKS:
            raise BadCallError(f"the server is gone: calls of this episode broke it {self._breaks} times")
        call, began = Call(tool, arguments), time.monotonic()
        self._calls.append(call)
        try:
            return await self._opened[-1].call(tool, arguments)
        except asyncio.CancelledError:
            call.is_cut = True
            raise
        finally:
            call.took_s = time.monotonic() - began

    async def _blame(self, tool: str, /, **_: Any) -> str:
        """Return the error for the model if a replay proves that its call broke the server, else ''."""
        try:
            await self._opened[-1].close(patience_s=0)
            if not await self._breaks_again():
                return ""
            fresh = await self._afresh()
        except ServiceError:
            return ""
        self._calls.clear()
        self._breaks += 1
        if self._breaks < MAX_BREAKS:
            return f"{tool!r} crashed the server or got no response. The server was restarted and its state is lost."
        await fresh.close()
        return f"{tool!r} crashed the server or got no response, as earlier calls did. It will not be restarted."

    async def _breaks_again(self) -> bool:
        """Replay the calls on a fresh server; return whether only the last one breaks it.

        Also True if there are too many calls, or they take too long, to find out.
        """
        if len(self._calls) > MAX_CALLS:
            return True
        fresh = await self._afresh()
        try:
            *before, last = self._calls
            async with asyncio.timeout(REPLAY_S):
                for call in before:
                    if is_broken(await replay(fresh, call)):
                        return False
            return is_broken(await replay(fresh, last))
        except TimeoutError:
            return True
        finally:
            await fresh.close(patience_s=0)


async def replay(fresh: Connection, call: Call) -> Caught:
    """Repeat a call on a fresh server."""
    return await within(fresh.call(call.tool, call.arguments), call.replay_timeout_s, f"{call.tool!r}, again")


def is_broken(caught: Caught) -> bool:
    """Return whether a call got no response."""
    return isinstance(caught.error, ServiceError | AuthorDeadlineError)


def split(command: str) -> list[str]:
    """Split a command line into words."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"McpServer: {command!r} is not a valid command line: {error}") from error

"""An MCP server as a toolset: started with the episode, asked for its tools, ended with the episode."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.env import BadCallError, Tool
from agentrl.env.authored import Outcome, caught_async, within
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.types import ToolSpec
from agentrl_tools.errors import ServiceError

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

    from agentrl_tools.mcp.process import ServerProcess

START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
MAX_CHARACTERS = 20_000
MOST_PAGES = 50
LOST = (-32000, -32001)
"""JSON-RPC codes of the client for a closed connection and for a request without an answer."""


class McpServer(AbstractAsyncContextManager[list[Tool]]):
    """Offer the tools of one server, a command (stdio) or a URL (streamable HTTP).

    A process is this episode's own and is killed with its children at the end. A server that dies, hangs or breaks the
    protocol raises ServiceError; what one of its tools says went wrong goes to the model. `only` names the tools to
    offer (none named: all); `env` adds to the few variables a server inherits. Needs `pip install 'agentrl[mcp]'`.
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
        self._life: asyncio.Task[Outcome] | None = None
        self._process: ServerProcess | None = None
        self._ending = asyncio.Event()

    def check(self) -> None:
        """ConfigError for what can be known to be missing before anything starts: the library, or the program."""
        load()
        path, folder = self.env.get("PATH"), self.cwd or Path()
        if self.command and not (shutil.which(self.command[0], path=path) or shutil.which(folder / self.command[0])):
            raise ConfigError(f"MCP server {self.name!r}: there is no program {self.command[0]!r}; install it")

    async def __aenter__(self) -> list[Tool]:
        """Start the server, and list its tools."""
        await asyncio.to_thread(load)
        self._ending = asyncio.Event()
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(caught_async(self._live(ready)))
        try:
            return await self._tools(ready, self._life)
        except BaseException:
            await self._end(patience_s=0)
            raise

    async def __aexit__(self, *_: object) -> None:
        """End the server. Idempotent, and bound by a deadline of its own."""
        await self._end(CLOSE_TIMEOUT_S)

    async def _live(self, ready: asyncio.Future[Client]) -> None:
        """The connection: one task enters and leaves it, as the library demands."""
        from mcp import Client

        async with Client(await self._transport()) as client:
            ready.set_result(client)
            await self._ending.wait()

    async def _transport(self) -> Any:
        if self.url:
            return self.url
        from agentrl_tools.mcp.process import ServerProcess, connected

        self._process = await ServerProcess.start(self.command, self.env, self.cwd)
        return connected(self._process)

    async def _tools(self, ready: asyncio.Future[Client], life: asyncio.Task[Outcome]) -> list[Tool]:
        began = time.monotonic()
        either: set[asyncio.Future[Any]] = {ready, life}
        await asyncio.wait(either, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            raise await self._lost("did not start", life.result().error)
        if not ready.done():
            raise await self._lost(f"did not answer within {START_TIMEOUT_S:g} s")
        left_s = max(0.1, START_TIMEOUT_S - (time.monotonic() - began))
        client = ready.result()
        outcome = await within(self._list(client), left_s, f"MCP server {self.name!r}: listing its tools")
        if outcome.error is not None:
            raise await self._lost("did not list its tools", outcome.error)
        return self._chosen(client, outcome.value)

    async def _list(self, client: Client) -> list[ToolSpec]:
        found: list[ToolSpec] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [
                ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
                for tool in page.tools
            ]
            if (cursor := page.next_cursor) is None:
                break
        return found

    def _chosen(self, client: Client, specs: list[ToolSpec]) -> list[Tool]:
        known = [spec["name"] for spec in specs]
        for name in self.only:
            if name not in known:
                raise UnknownNameError(f"tool of {self.name}", name, known)
        chosen = [spec for spec in specs if not self.only or spec["name"] in self.only]
        return [Tool(spec, partial(self._call, client, spec["name"]), silence="infra") for spec in chosen]

    async def _call(self, client: Client, tool: str, /, **arguments: Any) -> str:
        outcome = await caught_async(client.call_tool(tool, arguments))
        if is_tools_own(outcome.error):
            raise BadCallError(str(outcome.error))
        if outcome.error is not None:
            raise await self._lost(f"is lost (while it ran {tool!r})", outcome.error)
        if outcome.value.is_error:
            raise BadCallError(said(outcome.value))
        return said(outcome.value)

    async def _lost(self, what: str, error: BaseException | None = None) -> ServiceError:
        cause = innermost(error) if error is not None else None
        if isinstance(cause, ServiceError):
            return cause
        why = f": {type(cause).__name__}: {cause}" if cause is not None else ""
        obituary = await self._process.obituary() if self._process is not None else ""
        return ServiceError(f"MCP server {self.name!r} {what}{why}{obituary}")

    async def _end(self, patience_s: float) -> None:
        """Ask the connection to end, and kill the process after `patience_s`; no cancellation keeps it alive."""
        self._ending.set()
        life, self._life = self._life, None
        if life is None:
            return
        try:
            await asyncio.wait({life}, timeout=patience_s)
        finally:
            if self._process is not None:
                self._process.kill()
            if not life.done():
                life.cancel()
                await asyncio.wait({life}, timeout=CLOSE_TIMEOUT_S)


def split(command: str) -> list[str]:
    """The words of a command line."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"McpServer: {command!r} is no command line: {error}") from error


def load() -> None:
    """Import the library, which takes a second; ConfigError says how to install it."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise ConfigError(f"MCP servers need the package mcp: pip install 'agentrl[mcp]' ({error})") from error


def is_tools_own(error: BaseException | None) -> bool:
    """True for what the server answered to the model's call, False for a connection that is gone."""
    from mcp import MCPError

    return isinstance(error, MCPError) and error.code not in LOST


def innermost(error: BaseException) -> BaseException:
    """The first cause inside a group of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def said(result: CallToolResult) -> str:
    """The text of a result; what is no text is named, and a long one is cut."""
    parts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
    text = "\n".join(parts)
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters]"

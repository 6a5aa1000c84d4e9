"""One session with an MCP server: opened, asked for its tools, called, and ended for certain."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.env import BadCallError
from agentrl.env.driver.user_code import within
from agentrl.errors import Caught, ConfigError, acatch
from agentrl.types import ToolSpec
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp.allowance import Allowance

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


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: a URL, or a command with what it adds to the environment variables, and its folder."""

    name: str
    url: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


class Connection:
    """One session, and of a command the one process behind it."""

    def __init__(self, address: Address) -> None:
        self._address, self._allowance = address, Allowance()
        self._life: asyncio.Task[Caught] | None = None
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._ending = asyncio.Event()

    async def open(self) -> list[ToolSpec]:
        """Start the server, and list its tools; ServiceError where either fails."""
        await asyncio.to_thread(load)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(acatch(self._live(ready)))
        try:
            return await self._tools(ready, self._life)
        except BaseException:
            await self.close(patience_s=0)
            raise

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """What a tool answers; BadCallError for what it says went wrong, ServiceError for a session that is lost."""
        assert self._client is not None, "the session is open"
        self._allowance.renew()
        outcome = await acatch(self._client.call_tool(tool, arguments))
        if self._allowance.complaint or not (outcome.error is None or is_tools_own(outcome.error)):
            raise await self._lost(f"is lost (while it ran {tool!r})", outcome.error)
        if outcome.error is not None:
            raise BadCallError(str(outcome.error))
        if outcome.value.is_error:
            raise BadCallError(said(outcome.value))
        return said(outcome.value)

    async def close(self, patience_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask the session to end, and kill the process after `patience_s`; no cancellation keeps it alive."""
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

    async def _live(self, ready: asyncio.Future[Client]) -> None:
        """The connection: one task enters and leaves it, as the library demands."""
        from mcp import Client

        async with Client(await self._transport()) as client:
            ready.set_result(client)
            await self._ending.wait()

    async def _transport(self) -> Any:
        if self._address.url:
            from agentrl_tools.mcp.web import connected_to

            return connected_to(self._address.url, self._allowance)
        from agentrl_tools.mcp.process import ServerProcess, connected

        self._process = await ServerProcess.start(self._address.command, self._address.env, self._address.cwd)
        return connected(self._process, self._allowance)

    async def _tools(self, ready: asyncio.Future[Client], life: asyncio.Task[Caught]) -> list[ToolSpec]:
        began = time.monotonic()
        either: set[asyncio.Future[Any]] = {ready, life}
        await asyncio.wait(either, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            raise await self._lost("did not start", life.result().error)
        if not ready.done():
            raise await self._lost(f"did not answer within {START_TIMEOUT_S:g} s")
        left_s = max(0.1, START_TIMEOUT_S - (time.monotonic() - began))
        self._client = ready.result()
        outcome = await within(_listed(self._client), left_s, f"MCP server {self._address.name!r}: listing its tools")
        if outcome.error is not None:
            raise await self._lost("did not list its tools", outcome.error)
        tools: list[ToolSpec] = outcome.value
        return tools

    async def _lost(self, what: str, error: BaseException | None = None) -> ServiceError:
        cause = innermost(error) if error is not None else None
        if isinstance(cause, ServiceError):
            return cause
        why = f": {type(cause).__name__}: {cause}" if cause is not None else ""
        if self._allowance.complaint:
            why = f": it {self._allowance.complaint}"
        obituary = await self._process.obituary() if self._process is not None else ""
        return ServiceError(f"MCP server {self._address.name!r} {what}{why}{obituary}")


async def _listed(client: Client) -> list[ToolSpec]:
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


def load() -> None:
    """Import the library, which takes a second; ConfigError says how to install it."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise ConfigError(f"MCP servers need the package mcp: pip install 'agentrl[mcp]' ({error})") from error


def is_tools_own(error: BaseException) -> bool:
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

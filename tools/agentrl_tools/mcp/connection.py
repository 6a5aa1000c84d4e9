"""One session with an MCP server: open it, list its tools, call them, and close it reliably."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.env import BadCallError, within
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
MAX_PAGES = 50
LOST = (-32000, -32001)
"""JSON-RPC codes of the client for a closed connection and for a request without a response."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server: a URL, or a command with its additional environment variables and working folder."""

    name: str
    url: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


class Connection:
    """One session and, for a command, the process behind it."""

    def __init__(self, address: Address) -> None:
        self._address, self._allowance = address, Allowance()
        self._life: asyncio.Task[Caught] | None = None
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._ending = asyncio.Event()

    async def open(self) -> list[ToolSpec]:
        """Start the server and list its tools; ServiceError if either fails."""
        await asyncio.to_thread(load)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(acatch(self._live(ready)))
        try:
            return await self._tools(ready, self._life)
        except BaseException:
            await self.close(patience_s=0)
            raise

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return its text; BadCallError if it reports an error, ServiceError if the session is lost."""
        assert self._client is not None, "the session is open"
        self._allowance.renew()
        caught = await acatch(self._client.call_tool(tool, arguments))
        if self._allowance.violation or not (caught.error is None or is_from_tool(caught.error)):
            raise await self._lost(f"is lost (while it ran {tool!r})", caught.error)
        if caught.error is not None:
            raise BadCallError(str(caught.error))
        if caught.value.is_error:
            raise BadCallError(text_of(caught.value))
        return text_of(caught.value)

    async def close(self, patience_s: float = CLOSE_TIMEOUT_S) -> None:
        """End the session and kill the process after `patience_s`, even if this call is cancelled."""
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
        """Hold the connection open in one task, because the library requires the same task to enter and leave it."""
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
        caught = await within(_listed(self._client), left_s, f"MCP server {self._address.name!r}: listing its tools")
        if caught.error is not None:
            raise await self._lost("did not list its tools", caught.error)
        tools: list[ToolSpec] = caught.value
        return tools

    async def _lost(self, what: str, error: BaseException | None = None) -> ServiceError:
        cause = innermost(error) if error is not None else None
        if isinstance(cause, ServiceError):
            return cause
        why = f": {type(cause).__name__}: {cause}" if cause is not None else ""
        if self._allowance.violation:
            why = f": it {self._allowance.violation}"
        exit_summary = await self._process.exit_summary() if self._process is not None else ""
        return ServiceError(f"MCP server {self._address.name!r} {what}{why}{exit_summary}")


async def _listed(client: Client) -> list[ToolSpec]:
    found: list[ToolSpec] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [
            ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
            for tool in page.tools
        ]
        if (cursor := page.next_cursor) is None:
            break
    return found


def load() -> None:
    """Import the library, which takes a second; ConfigError with the install command if it is missing."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise ConfigError(f"MCP servers need the package mcp: pip install 'agentrl-core[mcp]' ({error})") from error


def is_from_tool(error: BaseException) -> bool:
    """Return True for an error that the server returned for the call, False for a lost connection."""
    from mcp import MCPError

    return isinstance(error, MCPError) and error.code not in LOST


def innermost(error: BaseException) -> BaseException:
    """Return the first exception inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def text_of(result: CallToolResult) -> str:
    """Return the text of a result, truncated to MAX_CHARACTERS; other content is replaced by its type."""
    parts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
    text = "\n".join(parts)
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters]"

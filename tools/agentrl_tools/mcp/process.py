"""The stdio transport: a server process in its own process group, which never outlives its episode."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agentrl.env import GroupProcess, start_process
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp.allowance import MAX_BYTES, Allowance, values_of
from agentrl_tools.mcp.schemas import WithoutOutputSchemas

LONGEST_LINE = MAX_BYTES
"""Maximum bytes of one message."""
GRACE_S = 0.5
"""How long a server may take to exit after its input is closed."""
MAX_LINES = 5
CHUNK = 1 << 16
MAX_LINE_BYTES = 1200
"""Maximum bytes kept of a line of stderr."""


class ServerProcess:
    """One server process. Its stderr is read, and the last lines appear in the error when it dies."""

    def __init__(self, group: GroupProcess) -> None:
        self.process, self.kill = group.process, group.kill
        self._group = group
        self.last_lines: deque[str] = deque(maxlen=MAX_LINES)

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> ServerProcess:
        """Start it with the variables that MCP servers inherit plus `env`; ServiceError if it cannot be started."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        variables = get_default_environment() | dict(env)
        try:
            return cls(await start_process(*command, env=variables, cwd=cwd, limit=LONGEST_LINE, **pipes))
        except OSError as error:
            raise ServiceError(f"MCP server {command[0]!r} cannot be started: {error}") from error

    def kill_if_broken(self, pump: asyncio.Task[None]) -> None:
        """Kill the server if a pump failed, for example on a message that cannot be written."""
        if not pump.cancelled() and (error := pump.exception()) is not None:
            self.keep_line(f"{type(error).__name__}: {error}".encode(errors="replace"))
            self.kill()

    async def end(self) -> None:
        """Close its input, wait a moment for it to exit, kill what is left of its group, and reap it."""
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._group.exited(), GRACE_S)
        finally:
            await self._group.end()

    async def exit_summary(self) -> str:
        """Return ' (it ended with code 1: ImportError: …)', or as much as is known within a moment."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), GRACE_S)  # until its pipes are closed, so that all is read
        code = self.process.returncode
        ending = "" if code is None else f"it ended with code {code}"
        summary = ": ".join(part for part in (ending, "; ".join(self.last_lines)) if part)
        return f" ({summary})" if summary else ""

    async def read_into(self, inbox: Any, allowance: Allowance) -> None:
        """Send every line of its output to `inbox` as a message, or as the error of parsing it."""
        assert self.process.stdout is not None
        async with inbox:
            try:
                async for line in self.process.stdout:
                    if not allowance.take(len(line), values_of(line) + 1):
                        return
                    message = as_message(line)
                    if isinstance(message, Exception):
                        self.keep_line(b"no JSON-RPC on its stdout: " + line)
                    await inbox.send(message)
            except ValueError:
                self.keep_line(f"a line of more than {LONGEST_LINE >> 20} MiB on its stdout".encode())
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass

    async def write_from(self, outbox: Any) -> None:
        """Write every message of `outbox` as a line of its input."""
        assert self.process.stdin is not None
        with suppress(ConnectionError, anyio.ClosedResourceError):
            async with outbox:
                async for message in outbox:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self.process.stdin.write(f"{text}\n".encode())
                    await self.process.stdin.drain()

    async def read_stderr(self) -> None:
        """Keep the last lines of its stderr, with any line ending and of any length."""
        assert self.process.stderr is not None
        line = b""
        while chunk := await self.process.stderr.read(CHUNK):
            *lines, line = (line + chunk).replace(b"\r", b"\n").split(b"\n")
            for whole in filter(bytes.strip, lines):
                self.keep_line(whole)
            line = line[:MAX_LINE_BYTES]
        if line.strip():
            self.keep_line(line)

    def keep_line(self, line: bytes) -> None:
        """Keep a line for `exit_summary`."""
        self.last_lines.append(line[:MAX_LINE_BYTES].decode(errors="replace").strip()[:300])


def as_message(line: bytes) -> SessionMessage | Exception:
    """Parse one line of JSON-RPC; return the error if it is malformed."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


@asynccontextmanager
async def connected(server: ServerProcess, allowance: Allowance) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two message streams of a running server for `mcp.Client`; end the server on exit."""
    inbox_writer, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, outbox_reader = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.ensure_future(pump)
        for pump in (server.read_into(inbox_writer, allowance), server.write_from(outbox_reader), server.read_stderr())
    ]
    for pump in pumps:
        pump.add_done_callback(server.kill_if_broken)
    try:
        yield WithoutOutputSchemas(inbox), outbox
    finally:
        try:
            await server.end()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for stream in (inbox_writer, inbox, outbox, outbox_reader):
                stream.close()

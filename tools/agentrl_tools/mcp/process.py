"""The stdio transport: a server process in a group of its own, which never outlives its episode."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp.allowance import MOST_BYTES, Allowance, values_of
from agentrl_tools.mcp.unpromised import Unpromised

LONGEST_LINE = MOST_BYTES
"""Bytes of one message."""
GRACE_S = 0.5
"""How long a server may take to end once its input is closed."""
REAPED_S = 4.0
"""How long a busy machine may take to tell of the end of a process that was killed."""
TOLD_LINES = 5
CHUNK = 1 << 16
MOST_HEARD = 1200
"""Bytes of a line of stderr."""


class ServerProcess:
    """One server process. What it writes on stderr is read, and its last lines explain its death."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.last_words: deque[str] = deque(maxlen=TOLD_LINES)

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> ServerProcess:
        """Start it with the environment variables that MCP servers inherit, and `env`; ServiceError where it cannot."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=get_default_environment() | dict(env),
                cwd=cwd,
                start_new_session=True,
                limit=LONGEST_LINE,
            )
        except OSError as error:
            raise ServiceError(f"MCP server {command[0]!r} cannot be started: {error}") from error
        return cls(process)

    def kill(self) -> None:
        """Kill the whole group at once; needs no await, so no cancellation can come between."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill_if_broken(self, pump: asyncio.Task[None]) -> None:
        """Where a pump ended with an error, such as a message that cannot be written, nobody waits for its answer."""
        if not pump.cancelled() and (error := pump.exception()) is not None:
            self.hear(f"{type(error).__name__}: {error}".encode(errors="replace"))
            self.kill()

    async def end(self) -> None:
        """Close its input, give it a moment to end by itself, kill what is left of its group, reap it."""
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
            await self._exited(GRACE_S)
        finally:
            self.kill()
        await self._exited(REAPED_S)
        if transport := getattr(self.process, "_transport", None):
            transport.close()  # a grandchild that left the group may hold the other ends of the pipes

    async def obituary(self) -> str:
        """' (it ended with code 1: ImportError: …)', as far as that is known within a moment."""
        await self._exited(GRACE_S)
        code = self.process.returncode
        ending = "" if code is None else f"it ended with code {code}"
        words = "; ".join(self.last_words)
        told = ": ".join(part for part in (ending, words) if part)
        return f" ({told})" if told else ""

    async def _exited(self, within_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), within_s)

    async def read_into(self, inbox: Any, allowance: Allowance) -> None:
        """Every line of its output as a message; a line that is none is handed on as the error it is."""
        assert self.process.stdout is not None
        async with inbox:
            try:
                async for line in self.process.stdout:
                    if not allowance.take(len(line), values_of(line) + 1):
                        return
                    message = as_message(line)
                    if isinstance(message, Exception):
                        self.hear(b"no JSON-RPC on its stdout: " + line)
                    await inbox.send(message)
            except ValueError:
                self.hear(f"a line of more than {LONGEST_LINE >> 20} MiB on its stdout".encode())
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass

    async def write_from(self, outbox: Any) -> None:
        """Every message as a line of its input."""
        assert self.process.stdin is not None
        with suppress(ConnectionError, anyio.ClosedResourceError):
            async with outbox:
                async for message in outbox:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self.process.stdin.write(f"{text}\n".encode())
                    await self.process.stdin.drain()

    async def listen(self) -> None:
        """Keep the last lines of its stderr, whatever ends them and however long they are."""
        assert self.process.stderr is not None
        line = b""
        while chunk := await self.process.stderr.read(CHUNK):
            *lines, line = (line + chunk).replace(b"\r", b"\n").split(b"\n")
            for whole in filter(bytes.strip, lines):
                self.hear(whole)
            line = line[:MOST_HEARD]
        if line.strip():
            self.hear(line)

    def hear(self, line: bytes) -> None:
        """Keep a line, for the obituary."""
        self.last_words.append(line[:MOST_HEARD].decode(errors="replace").strip()[:300])


def as_message(line: bytes) -> SessionMessage | Exception:
    """One line of JSON-RPC."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


@asynccontextmanager
async def connected(server: ServerProcess, allowance: Allowance) -> AsyncIterator[tuple[Any, Any]]:
    """The two message streams of a running server, for `mcp.Client`; the server has ended when the body has."""
    inbox_writer, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, outbox_reader = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.ensure_future(pump)
        for pump in (server.read_into(inbox_writer, allowance), server.write_from(outbox_reader), server.listen())
    ]
    for pump in pumps:
        pump.add_done_callback(server.kill_if_broken)
    try:
        yield Unpromised(inbox), outbox
    finally:
        try:
            await server.end()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for stream in (inbox_writer, inbox, outbox, outbox_reader):
                stream.close()

"""WebSockets of a server (RFC 6455): `websockets` parses, and every wait has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.frames import DATA_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

READ_BYTES, SEND_S, CLOSE_S = 1 << 16, 30.0, 1.0
MAX_WAITING = 16
"""Messages of a client that wait to be received; further ones stay in the connection."""


class HandshakeError(Exception):
    """A request for a WebSocket that is refused."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def handshake(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the response that accepts a WebSocket. Raises HandshakeError.

    Pages of a browser, which send an Origin, are refused: any page could otherwise use a server of this machine.
    """
    if method != "GET":
        raise HandshakeError(HTTPStatus.METHOD_NOT_ALLOWED, f"a WebSocket begins with GET, not with {method}")
    response = ServerProtocol(origins=[None]).accept(Request(path, Headers(headers)))
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        raise HandshakeError(HTTPStatus(response.status_code), (response.body or b"").decode().strip())
    return response.serialize()


class WebSocket:
    """An open WebSocket of text messages. Pings are answered while nobody receives."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int, early: bytes = b""
    ) -> None:
        self._reader, self._writer, self._early = reader, writer, early
        self._protocol = ServerProtocol(state=State.OPEN, max_size=max_bytes)
        self._messages: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Read while the context is open, and close the WebSocket afterwards.

        The body is cancelled, and the context ends, when the client closes or breaks the connection.
        """
        owner = asyncio.current_task()
        assert owner is not None
        is_gone = is_over = False

        def end(_: asyncio.Task[None]) -> None:
            nonlocal is_gone
            if not is_over:
                is_gone = True
                owner.cancel()

        reading = asyncio.create_task(self._read())
        reading.add_done_callback(end)
        try:
            yield
        except asyncio.CancelledError:
            if not is_gone or owner.uncancel() > 0:
                raise
        finally:
            is_over = True
            reading.cancel()
            await asyncio.wait({reading})
            await self._close()

    async def receive(self, timeout_s: float) -> str:
        """Return the next message of the client. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await self._messages.get()

    async def send(self, text: str) -> None:
        """Send a message. Raises TimeoutError if the client does not read, and ConnectionError if it is gone."""
        if self._protocol.state is not State.OPEN:
            raise ConnectionResetError
        self._protocol.send_text(text.encode())
        await self._flush()

    async def _read(self) -> None:
        """Read until the client closes or breaks the connection."""
        data, text = self._early, bytearray()
        with suppress(OSError, TimeoutError):
            while self._protocol.state is State.OPEN:
                self._protocol.receive_data(data)
                for frame in self._protocol.events_received():
                    if not isinstance(frame, Frame) or frame.opcode not in DATA_OPCODES:
                        continue  # the protocol answers control frames itself
                    if frame.opcode is Opcode.BINARY:
                        self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "send text")
                        break
                    text += frame.data
                    if frame.fin:
                        await self._take(bytes(text))
                        text.clear()
                await self._flush()
                if self._protocol.state is State.OPEN and not (data := await self._reader.read(READ_BYTES)):
                    return

    async def _take(self, message: bytes) -> None:
        try:
            await self._messages.put(message.decode())
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA, "this is not UTF-8")

    async def _flush(self) -> None:
        data = self._protocol.data_to_send()
        if any(data):
            self._writer.write(b"".join(data))
        if SEND_EOF in data:
            self._writer.write_eof()
        async with asyncio.timeout(SEND_S):
            await self._writer.drain()

    async def _close(self) -> None:
        """Say goodbye, and wait a moment for the client's goodbye, so that it reads what was sent before."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                await self._flush()
                while self._protocol.state is not State.CLOSED and (data := await self._reader.read(READ_BYTES)):
                    self._protocol.receive_data(data)
                    await self._flush()

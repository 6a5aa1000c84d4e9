"""The host's end of a channel to a warden: frames over a socket, on whichever event loop asks."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Protocol

from agentrl_sandbox.errors import LostError
from agentrl_sandbox.inside import wire

CHUNK_BYTES = 1 << 17


class Transport(Protocol):
    """Bytes to and from the warden."""

    async def send(self, data: bytes) -> None:
        """Send all of it."""

    async def receive(self) -> bytes:
        """Some bytes; none when the other end is closed."""

    def is_open(self) -> bool:
        """False when the other end is known to be closed."""

    def shut(self) -> None:
        """End the conversation for both sides, whoever waits on it; safe to call twice."""

    def close(self) -> None:
        """Release it, when nobody waits on it any more."""


class SocketTransport:
    """A connected socket as a transport."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def receive(self) -> bytes:
        """Some bytes; none when the other end is closed."""
        return await asyncio.get_running_loop().sock_recv(self._socket, CHUNK_BYTES)

    def is_open(self) -> bool:
        """False when the warden has closed its end, or says something nobody asked for."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def shut(self) -> None:
        """End the conversation: the warden takes this as its order to end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release it, when nobody waits on it any more."""
        self._socket.close()


class Channel:
    """Frames over a transport; LostError when the warden is gone or says what no warden says."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._received = bytearray()

    async def send(self, *frames: bytes) -> None:
        """Send frames together."""
        try:
            await self.transport.send(b"".join(frames))
        except OSError as error:
            raise LostError(f"the sandbox closed its channel ({error.strerror or error})") from error

    async def receive(self, nonce: bytes = wire.NO_NONCE) -> tuple[bytes, bytes]:
        """Kind and payload of the next frame, which carries this nonce."""
        header = await self._exactly(wire.HEADER_BYTES)
        try:
            length, kind, given = wire.parse_header(header)
        except ValueError as error:
            raise LostError(f"the sandbox sent what is no frame: {error}") from error
        if given != nonce:
            raise LostError("the sandbox sent a frame with a wrong nonce")
        return kind, await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            try:
                data = await self.transport.receive()
            except OSError as error:
                raise LostError(f"the sandbox closed its channel ({error.strerror or error})") from error
            if not data:
                raise LostError("the sandbox closed its channel")
            self._received += data
        found = bytes(self._received[:count])
        del self._received[:count]
        return found

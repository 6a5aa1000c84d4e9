"""The host's end of a channel to a warden: frames over a socket, usable from any event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Protocol

from agentrl_sandbox.errors import LostError
from agentrl_sandbox.inside import wire

CHUNK_BYTES = 1 << 17


class Transport(Protocol):
    """Byte stream to and from the warden."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""

    async def receive(self) -> bytes:
        """Return some bytes, or b"" if the other end is closed."""

    def is_open(self) -> bool:
        """Return False if the other end is known to be closed."""

    def shut(self) -> None:
        """Shut down both directions, which wakes pending calls; idempotent."""

    def close(self) -> None:
        """Release the descriptor once no call is pending."""


class SocketTransport:
    """Transport over a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def receive(self) -> bytes:
        """Return some bytes, or b"" if the other end is closed."""
        return await asyncio.get_running_loop().sock_recv(self._socket, CHUNK_BYTES)

    def is_open(self) -> bool:
        """Return False if the warden has closed its end or sent something unsolicited."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def shut(self) -> None:
        """Shut down the socket, which tells the warden to exit."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket once no call is pending."""
        self._socket.close()


class Channel:
    """Frames over a transport; LostError if the warden is gone or sends invalid data."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._received = bytearray()

    async def send(self, *frames: bytes) -> None:
        """Send frames in one write."""
        try:
            await self.transport.send(b"".join(frames))
        except OSError as error:
            raise LostError(f"the sandbox closed its channel ({error.strerror or error})") from error

    async def receive(self, nonce: bytes = wire.NO_NONCE) -> tuple[bytes, bytes]:
        """Return kind and payload of the next frame, which must carry this nonce."""
        header = await self._exactly(wire.HEADER_BYTES)
        try:
            length, kind, received = wire.parse_header(header)
        except ValueError as error:
            raise LostError(f"the sandbox sent an invalid frame: {error}") from error
        if received != nonce:
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

"""Channels: ordered messages between two processes."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

HEAD_BYTES = 4
MAX_BYTES = 256 << 20
CLOSE_S = 5.0


class Channel(Protocol):
    """A connection that carries whole messages."""

    def send(self, message: bytes) -> None:
        """Send a message; it is lost if the other side is gone."""

    async def receive(self) -> bytes | None:
        """Return the next message, None after the last one."""

    async def close(self) -> None:
        """Send what was given to `send`, and end the connection. Idempotent."""


class StreamChannel:
    """A channel over a connected socket: each message follows its length in four bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, connected: socket.socket) -> StreamChannel:
        """Return the channel over a socket, which it owns from now on."""
        connected.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connected))

    def send(self, message: bytes) -> None:
        """Send a message; it is lost if the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(len(message).to_bytes(HEAD_BYTES, "big") + message)

    async def receive(self) -> bytes | None:
        """Return the next message, None after the last one."""
        try:
            head = await self._reader.readexactly(HEAD_BYTES)
            length = int.from_bytes(head, "big")
            return await self._reader.readexactly(length) if length <= MAX_BYTES else None
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def close(self) -> None:
        """Send what was given to `send`, and end the connection. Idempotent."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._writer.wait_closed())  # which is cancelled for all who wait, later ones too
        except (TimeoutError, OSError):  # the other side reads no more
            self._writer.transport.abort()

    def abort(self) -> None:
        """End the connection at once: what has arrived can still be received."""
        self._writer.transport.abort()

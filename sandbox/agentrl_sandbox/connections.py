"""Connections of a server, bounded in number; those without a token are fewer and short-lived."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from agentrl_sandbox import http

STRANGERS = 128
"""Maximum connections without a token. A new one replaces the oldest of the address that has the most."""

BACKLOG = 1024
RETRY_S = 0.1
FLUSH_S = 10.0
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """The connections of one server, each served by its own task."""

    def __init__(self, serve: Serve, most: int, strangers: int = STRANGERS) -> None:
        """Accept at most `most` connections with a token, plus `strangers` without."""
        self._serve, self._most, self._most_strangers = serve, most, strangers
        self._strangers: dict[asyncio.Task[None], str] = {}  # task -> address, oldest first
        self._known: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, backlog=BACKLOG) as listener:
            listener.setblocking(False)
            accepting = asyncio.create_task(self._accept(listener, tls))
            try:
                yield listener.getsockname()[1]
            finally:
                tasks = [accepting, *self._strangers, *self._known]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self) -> bool:
        """Record that the running task's connection has a valid token; return False if there are too many of them."""
        task = asyncio.current_task()
        assert task is not None
        if task not in self._known and len(self._known) >= self._most:
            return False
        self._strangers.pop(task, None)
        self._known.add(task)
        return True

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        while True:
            try:
                sock, address = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # the client has disconnected, or no file descriptor is left
                await asyncio.sleep(RETRY_S)
                continue
            if len(self._strangers) >= self._most_strangers:
                self._push_out()
            self._strangers[asyncio.create_task(self._run(sock, tls))] = str(address[0])
            await asyncio.sleep(0)  # a flood of connections must not monopolise this loop

    def _push_out(self) -> None:
        [(crowded, _)] = Counter(self._strangers.values()).most_common(1)
        oldest = next(task for task, address in self._strangers.items() if address == crowded)
        del self._strangers[oldest]
        oldest.cancel()

    async def _run(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        task, writer = asyncio.current_task(), None
        assert task is not None
        try:
            with suppress(OSError, TimeoutError):
                reader, writer = await _open(sock, tls)
                await self._serve(reader, writer)
                writer.close()
                async with asyncio.timeout(FLUSH_S):
                    await writer.wait_closed()
        finally:
            self._strangers.pop(task, None)
            self._known.discard(task)
            if writer:
                writer.transport.abort()


async def _open(sock: socket.socket, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Perform the TLS handshake, if any; OSError or TimeoutError if it fails."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:  # detects clients whose machine has disappeared
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError:
        sock.close()
        raise
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=http.HEAD_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=http.HEAD_S if tls else None
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

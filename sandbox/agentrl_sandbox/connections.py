"""The connections of a server: as many as it can hold, and of those without a token only a few, for a short time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from agentrl_sandbox import http

STRANGERS = 128
"""Connections without a token yet. One more takes the place of the oldest, of the address that has most of them."""

BACKLOG = 1024
RETRY_S = 0.1
FLUSH_S = 10.0
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """Accepts, bounds and ends the connections of one server; each is served by a task of its own."""

    def __init__(self, serve: Serve, most: int, strangers: int = STRANGERS) -> None:
        """`most`: how many that have shown a token, beside the `strangers`."""
        self._serve, self._most, self._most_strangers = serve, most, strangers
        self._strangers: dict[asyncio.Task[None], str] = {}  # their addresses, oldest first
        self._known: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve while the context is open; gives the port."""
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
        """Return the running task's connection has shown the token; False where there are too many of those."""
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
            except OSError:  # the client has gone already, or this process has no file descriptor left
                await asyncio.sleep(RETRY_S)
                continue
            if len(self._strangers) >= self._most_strangers:
                self._push_out()
            self._strangers[asyncio.create_task(self._run(sock, tls))] = str(address[0])
            await asyncio.sleep(0)  # to others too: who comes fast must not keep this loop to itself

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
    """Shake hands; OSError or TimeoutError where that fails."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:  # the kernel notices a client whose machine is gone
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

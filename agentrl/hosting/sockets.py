"""Environments on other machines: the protocol of `hosting` over WebSockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.http11 import Request, Response

from agentrl.config.tokens import token_in
from agentrl.env import close_shared
from agentrl.errors import ConfigError, WorkerLostError
from agentrl.hosting.channel import CLOSE_S, MAX_BYTES
from agentrl.hosting.host import Host, HostedEnv

PLAIN, SECURE = "agentrl", "agentrls"
"""Schemes of addresses: over TCP, and over TLS."""
TOKEN = "AGENTRL_ENV_TOKEN"
"""Environment variable of a worker with the secret of the server."""
OPEN_S, PATIENCE_S, PAUSE_S = 30.0, 60.0, 1.0
"""How long a handshake may take, and for how long and how often a server that is away is called again."""
PING_S, SILENCE_S = 30.0, 120.0
"""How often the server asks whether a worker is there, and how long that may take to answer."""


def _is_own(record: logging.LogRecord) -> bool:
    """Return False for an error of a client that opens no WebSocket, such as one that speaks TLS."""
    return not (record.exc_info and isinstance(record.exc_info[1], InvalidHandshake))


_LOG = logging.getLogger(__name__)
_LOG.addFilter(_is_own)


def name_at(address: str) -> str:
    """Return the name of the environment at an address. Raises ConfigError."""
    return Address.parse(address).name


class SocketChannel:
    """A channel over a WebSocket: each message is one of text."""

    def __init__(self, socket: ClientConnection | ServerConnection) -> None:
        self._socket = socket
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._sending = asyncio.create_task(self._send())

    def send(self, message: bytes) -> None:
        """Send a message; it is lost if the other side is gone."""
        self._outgoing.put_nowait(message)

    async def receive(self) -> bytes | None:
        """Return the next message, None after the last one."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed:
            return None

    async def close(self) -> None:
        """Send what was given to `send`, and end the connection. Idempotent."""
        self._outgoing.put_nowait(None)
        await asyncio.wait({self._sending}, timeout=CLOSE_S)
        self._sending.cancel()
        await self._socket.close()
        await asyncio.wait({self._sending})

    async def _send(self) -> None:
        try:
            while (message := await self._outgoing.get()) is not None:
                await self._socket.send(message, text=True)
        except ConnectionClosed:
            return


class SocketConnection:
    """A connection of a worker to a server."""

    def __init__(self, socket: ClientConnection, address: str) -> None:
        self.channel = SocketChannel(socket)
        self._socket, self._address = socket, address

    @classmethod
    async def open(cls, address: str, patience_s: float = PATIENCE_S) -> SocketConnection:
        """Connect to a server, which may be away for `patience_s` seconds.

        Raises ConfigError if it refuses the worker, WorkerLostError if it does not answer.
        """
        parts, token = Address.parse(address), token_in(TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        until = time.monotonic() + patience_s
        while True:
            try:
                opened = connect(
                    parts.url,
                    additional_headers=headers, open_timeout=OPEN_S, close_timeout=CLOSE_S, ping_interval=None,
                    max_size=MAX_BYTES, compression=None, proxy=None,
                )  # fmt: skip
                return cls(await opened, address)
            except (OSError, InvalidHandshake) as error:
                status = error.response.status_code if isinstance(error, InvalidStatus) else HTTPStatus.BAD_GATEWAY
                if status < HTTPStatus.INTERNAL_SERVER_ERROR:  # others are of a proxy whose server is away
                    remedy = f": set {TOKEN} to its token" if status == HTTPStatus.UNAUTHORIZED else ""
                    raise ConfigError(f"{address} refused the connection with status {status}{remedy}") from error
                if time.monotonic() > until:
                    remedy = f"start it with `agentrl env serve {parts.name} --protocol agentrl`"
                    raise WorkerLostError(f"{address} cannot be reached ({error!r}): {remedy}") from error
            await asyncio.sleep(PAUSE_S)

    async def ended(self) -> str:
        """Return how the connection ended."""
        reason = self._socket.close_reason
        return f"the connection to {self._address} ended ({reason or self._socket.close_code or 'not closed'})"

    async def close(self) -> None:
        """End the connection; the server tears its episodes down. Idempotent."""
        await self.channel.close()

    def kill(self) -> None:
        """End the connection at once."""
        self._socket.transport.abort()


class EnvServer:
    """Serves one environment to workers; each connection is one worker with any number of episodes."""

    def __init__(self, name: str, options: Mapping[str, Any], token: str = "") -> None:
        self._env, self._token = HostedEnv.named(name, options), token
        _ = self._env.digest  # of the source that was loaded: its files may change while it is served

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port. On exit all episodes are torn down."""
        try:
            async with serve(
                self._connected, host, port, process_request=self._admit, origins=[None], open_timeout=OPEN_S,
                close_timeout=CLOSE_S, ping_interval=PING_S, ping_timeout=SILENCE_S, max_size=MAX_BYTES,
                compression=None, logger=_LOG,
            ) as server:  # fmt: skip
                yield next(iter(server.sockets)).getsockname()[1]
        finally:
            await close_shared()

    async def _connected(self, socket: ServerConnection) -> None:
        channel = SocketChannel(socket)
        try:
            await Host(channel, self._opened).run()
        finally:
            await channel.close()

    def _opened(self, name: str, options: Mapping[str, Any]) -> HostedEnv:
        if name != self._env.name:
            raise ConfigError(f"this server has the environment {self._env.name}, not {name}")
        if options:
            raise ConfigError(
                f"--env.{next(iter(options))}: the keys of a served environment are set where it is served"
            )
        return self._env

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "")
        if self._token and not compare_digest(given.encode(errors="replace"), f"Bearer {self._token}".encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong\n")
        return None


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of agentrl://HOST:PORT/NAME: where the server listens, and the name of the environment."""

    url: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the parts of an address. Raises ConfigError."""
        scheme, _, rest = text.partition("://")
        where, _, name = rest.partition("/")
        try:
            parts = urlsplit(f"//{where}")
            is_whole = bool(parts.hostname and name and (parts.port or scheme == SECURE))
        except ValueError:  # a port that is none, half an IPv6 address
            is_whole = False
        if not is_whole:
            raise ConfigError(
                f"{text}: write {PLAIN}://HOST:PORT/NAME, as `agentrl env serve` prints it (an IPv6 address as [::1]), "
                f"or {SECURE}://HOST/NAME for a proxy with TLS"
            )
        return cls(f"{'wss' if scheme == SECURE else 'ws'}://{where}", name)

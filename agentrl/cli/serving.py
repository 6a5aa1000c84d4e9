"""What the commands that serve have in common: the clients' secret, the address, and the end at a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from agentrl.config.tokens import checked_token
from agentrl.config.urls import with_port
from agentrl.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = ("0.0.0.0", "::", "")
MIN_TOKEN = 16


class Server(Protocol):
    """What is served: entered, it listens on a port, which it returns."""

    def listening(self, host: str, port: int) -> AbstractAsyncContextManager[int]:
        """Listen on a port of `host`; 0: a free one."""
        ...


def secret(token: str, source: str) -> str:
    """Return the clients' token. Raises ConfigError, naming its source, if it is short or cannot be sent."""
    token = checked_token(token, source)
    if len(token) < MIN_TOKEN:
        raise ConfigError(f"{source} has {len(token)} characters: write {MIN_TOKEN} or more random ones")
    return token


def check_reach(host: str, token: str, remedy: str) -> None:
    """Raise ConfigError if other machines reach a server that admits every client."""
    if not token and host not in LOOPBACK:
        raise ConfigError(f"--host {host} lets other machines in: {remedy}")


def serve(server: Server, host: str, port: int, announcement: Callable[[str], str]) -> None:
    """Serve until SIGINT or SIGTERM, and print the announcement of HOST:PORT once the server listens.

    All addresses of this machine, which no client can ask, are called by its name.
    """
    asyncio.run(_serve(server, host, port, announcement))


async def _serve(server: Server, host: str, port: int, announcement: Callable[[str], str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with server.listening(host, port) as bound:
            name = socket.gethostname() if host in EVERYWHERE else host
            print(announcement(with_port(name, bound)), flush=True)
            await stop.wait()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error

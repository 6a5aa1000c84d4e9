from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agentrl.cli.serving import serve


class Deaf:
    """A server that listens on no socket and says which port it has."""

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        yield 4000


@pytest.mark.parametrize(
    ("host", "name"),
    [("0.0.0.0", socket.gethostname()), ("::", socket.gethostname()), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7")],
)
def test_a_server_is_announced_at_an_address_that_a_client_can_ask_and_ends_at_a_signal(host: str, name: str) -> None:
    announced: list[str] = []

    def announcement(address: str) -> str:
        announced.append(address)
        os.kill(os.getpid(), signal.SIGTERM)
        return address

    serve(Deaf(), host, 0, announcement)
    assert announced == [f"{name}:4000"]

"""Every call between a worker and an environment is answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentrl.errors import EnvError
from agentrl.hosting import channel, peer
from agentrl.hosting.channel import StreamChannel
from agentrl.hosting.peer import Peer
from agentrl.hosting.wire import RemoteError

LIMIT = 2000


class WordlessError(Exception):
    """An error that raises itself where its text is wanted."""

    def __str__(self) -> str:
        raise self

    __repr__ = __str__


async def served(method: str, arguments: dict[str, Any]) -> Any:
    match method:
        case "raise":
            raise WordlessError
        case "return":
            return {"row": WordlessError()}
        case "write":
            return "x" * arguments["chars"]
        case "fail":
            raise EnvError("x" * arguments["chars"])


@asynccontextmanager
async def caller() -> AsyncIterator[Peer]:
    """A peer whose calls another one serves with `served`."""
    ends = [await StreamChannel.over(end) for end in socket.socketpair()]
    peers = [Peer(end, served) for end in ends]

    async def ended() -> str:
        return "the connection ended"

    running = [asyncio.create_task(one.run(ended)) for one in peers]
    try:
        async with asyncio.timeout(20):
            yield peers[0]
    finally:
        for end in ends:
            await end.close()
        await asyncio.wait(running)


async def test_an_error_without_a_text_is_an_answer() -> None:
    async with caller() as one:
        with pytest.raises(RemoteError, match=r"^WordlessError: <WordlessError without str> \(test_peer.py:"):
            await one.call("raise")


async def test_a_value_without_a_text_is_sent_as_the_name_of_its_type() -> None:
    async with caller() as one:
        assert await one.call("return") == {"row": "<WordlessError without repr>"}


@pytest.mark.parametrize(
    ("method", "arguments", "what"),
    [
        ("write", {"chars": 3 * LIMIT}, r"the result of write has 6,0\d\d bytes"),
        ("fail", {"chars": 3 * LIMIT}, r"the error of fail has \d+,\d+ bytes"),
        ("write", {"chars": 0, "more": "x" * LIMIT}, r"the arguments of write have 2,0\d\d bytes"),
    ],
)
async def test_a_message_over_the_limit_is_an_error_of_its_call_alone(
    monkeypatch: pytest.MonkeyPatch, method: str, arguments: dict[str, Any], what: str
) -> None:
    monkeypatch.setattr(channel, "MAX_BYTES", LIMIT)
    monkeypatch.setattr(peer, "MAX_BYTES", LIMIT, raising=False)
    async with caller() as one:
        other = asyncio.create_task(one.call("write", chars=3))
        with pytest.raises(EnvError, match=f"{what} as JSON: at most 2,000 pass between an environment and its worker"):
            await one.call(method, **arguments)
        assert await other == "xxx"
        assert await one.call("write", chars=4) == "xxxx"

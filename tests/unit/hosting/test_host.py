"""The side of a connection that has the environment keeps nothing of an episode that is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from agentrl.hosting.host import Host, HostedEnv
from agentrl.hosting.wire import PROTOCOL


class Line:
    """A channel whose other end is this test."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._number = 0

    async def receive(self) -> bytes | None:
        return await self.calls.get()

    def send(self, message: bytes) -> None:
        self.answers.put_nowait(msgspec.json.decode(message))

    async def close(self) -> None:
        pass

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        self._number += 1
        self.calls.put_nowait(msgspec.json.encode({"id": self._number, "call": method, "with": arguments}))
        async with asyncio.timeout(30.0):
            answer = await self.answers.get()
        assert answer["id"] == self._number
        return answer


async def test_nothing_is_kept_of_closed_episodes() -> None:
    line = Line()
    host = Host(line, HostedEnv.named)
    serving = asyncio.create_task(host.run())
    await line.call("open", protocol=PROTOCOL, name="guess", options={})
    for episode in range(3):
        await line.call("reset", episode=episode, max_turns=0, task={"split": "train", "index": 0, "seed": 0})
        assert "error" not in await line.call("close", episode=episode)
    assert not host._drivers
    assert not host._uses
    line.calls.put_nowait(None)
    await serving

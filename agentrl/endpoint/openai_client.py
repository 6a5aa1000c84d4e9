"""The OpenAI client of `Model.client`, which an agent may use in any event loop. Imports the package openai."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient


def openai_client(home: asyncio.AbstractEventLoop, **options: Any) -> AsyncOpenAI:
    """Return a client that keeps the connections of one event loop, and opens one for each request of another.

    A plain `play` runs in a thread, where the agent may begin a loop of its own. Its connections are of no use to other
    loops, and nobody can close them once it has ended. `options` are those of AsyncOpenAI.
    """
    # No proxy of the machine has a way to this process, and the loopback needs no certificates.
    direct: dict[str, Any] = {"trust_env": False, "verify": False}

    class Client(DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            if asyncio.get_running_loop() is home:
                return await super().send(request, **options)
            request.headers["connection"] = "close"
            response = await DefaultAsyncHttpxClient(**direct).send(request, **options)
            await asyncio.sleep(0)  # a socket is closed in the next round of the loop, which may be its last
            return response

    return KeyedOpenAI(http_client=Client(**direct), **options)


class KeyedOpenAI(AsyncOpenAI):
    """A client whose requests have keys, which their repetitions share: each gets the answer of its own call."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._idempotency_header = "Idempotency-Key"

"""The streamable HTTP transport of the library, with a client that reads no more than the allowance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from agentrl_tools.mcp.allowance import MAX_BYTES, Allowance, values_of
from agentrl_tools.mcp.schemas import WithoutOutputSchemas

TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""The library's own timeouts: a server may be silent while a tool runs, and calls have their own deadlines."""
EVENTS = "text/event-stream"


@asynccontextmanager
async def connected_to(url: str, allowance: Allowance) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two message streams of the server at a URL for `mcp.Client`."""
    headers, hooks = {"Accept-Encoding": "identity"}, {"response": [bounding(allowance)]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, event_hooks=hooks) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BYTES) as (inbox, outbox),
    ):
        yield WithoutOutputSchemas(inbox), outbox


def bounding(allowance: Allowance) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a client hook that bounds every response; it is called once the headers have arrived."""

    async def bound(response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity") != "identity":
            allowance.end_call("sent a compressed response, which is not supported")
        if response.request.method == "POST" and response.is_error and not kind.startswith("application/json"):
            allowance.end_call(f"responded with status {response.status_code}")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = Bounded(response.stream, allowance, kind.startswith(EVENTS))

    return bound


class Bounded(httpx2.AsyncByteStream):
    """Byte stream of a response; beyond the allowance it raises the error that makes the library end the request."""

    def __init__(self, inner: httpx2.AsyncByteStream, allowance: Allowance, is_events: bool) -> None:
        self._inner, self._allowance = inner, allowance
        self._error = httpx2.SSEError if is_events else httpx2.StreamError

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line = bytearray()
        async for chunk in self._inner:
            first, *others = chunk.replace(b"\r", b"\n").split(b"\n")
            self._take(len(chunk), len(others))
            line += first
            for other in others:
                self._take(values=values_of(bytes(line)))
                line = bytearray(other)
            yield chunk
        self._take(values=values_of(bytes(line)))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    def _take(self, size: int = 0, values: int = 0) -> None:
        if not self._allowance.take(size, values):
            raise self._error(f"the server {self._allowance.violation}")

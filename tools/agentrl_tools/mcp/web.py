"""The streamable HTTP transport: the library's own, given a client that reads no more than the allowance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from agentrl_tools.mcp.allowance import MOST_BYTES, Allowance, values_of
from agentrl_tools.mcp.unpromised import Unpromised

TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds, as the library has them: a server may be silent while a tool runs; calls have deadlines of their own."""
EVENTS = "text/event-stream"


@asynccontextmanager
async def connected_to(url: str, allowance: Allowance) -> AsyncIterator[tuple[Any, Any]]:
    """The two message streams of the server at a URL, for `mcp.Client`."""
    headers, hooks = {"Accept-Encoding": "identity"}, {"response": [bounding(allowance)]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, event_hooks=hooks) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MOST_BYTES) as (inbox, outbox),
    ):
        yield Unpromised(inbox), outbox


def bounding(allowance: Allowance) -> Callable[[httpx2.Response], Awaitable[None]]:
    """A hook for the client, called with the head of every response."""

    async def bound(response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity") != "identity":
            allowance.complain("sent a compressed answer, which is not read")
        if response.request.method == "POST" and response.is_error and not kind.startswith("application/json"):
            allowance.complain(f"answered with the status {response.status_code}")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = Bounded(response.stream, allowance, kind.startswith(EVENTS))

    return bound


class Bounded(httpx2.AsyncByteStream):
    """The bytes of a response, no more than the allowance; then the error at which the library ends the request."""

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
            raise self._error(f"the server {self._allowance.complaint}")

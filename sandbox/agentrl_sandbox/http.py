"""As much of HTTP/1.1 as the sandbox server speaks: requests with a length, answers in chunks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentrl_sandbox.inside.wire import MOST_BYTES

HEAD_S, BODY_S = 600.0, 60.0
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    409: "Conflict",
    503: "Service Unavailable",
}


class BadRequestError(Exception):
    """What came is not a request that this server takes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None when it has ended. BadRequestError for anything else."""
    try:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= MOST_BYTES:
            raise BadRequestError(f"a body of {length} bytes")
        async with asyncio.timeout(BODY_S):
            return Request(method, path, headers, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise BadRequestError("this is no HTTP request") from error


def head(status: int) -> bytes:
    """The head of an answer whose body follows in chunks."""
    return f"HTTP/1.1 {status} {REASONS[status]}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """A piece of the body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(status: int, text: str) -> bytes:
    """A short answer, after which the connection ends."""
    body = text.encode()
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )

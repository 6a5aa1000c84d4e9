"""As much of HTTP/1.1 as the sandbox server speaks: requests with a length, answers in chunks, and a deadline for each.

Ours, because a library's server reads a body before it asks for a token, or waits for half a request for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

HEAD_BYTES = 1 << 14
HEAD_S = 10.0
IDLE_S = 60.0
"""How long a connection stays open between requests; clients close it earlier."""

TRANSFER_S, LEAST_RATE = 10.0, 1 << 20
"""Bodies and answers have this time, and a second more for so many bytes."""

DISCARD_S, DISCARD_BYTES = 1.0, 1 << 20
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    409: "Conflict",
    413: "Content Too Large",
    503: "Service Unavailable",
}


class BadRequestError(Exception):
    """What came is not a request that this server takes."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a request's body; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    length: int


async def read_head(reader: asyncio.StreamReader, within_s: float) -> Head | None:
    """The head of the next request; None when the connection has ended, or `within_s` has. Else BadRequestError."""
    try:
        async with asyncio.timeout(within_s):
            text = await reader.readuntil(b"\r\n\r\n")
        first, *lines = text.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = [line.partition(":")[::2] for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()) or len(headers) < len(pairs):
            raise BadRequestError("a request needs a Content-Length, and each header once")
        return Head(method, path, headers, int(length))
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise BadRequestError("this is no HTTP request") from error


async def read_body(reader: asyncio.StreamReader, length: int) -> bytes:
    """Return all of it; TimeoutError where it comes too slowly, ConnectionError where it ends."""
    try:
        async with asyncio.timeout(allowance_s(length)):
            return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the body has ended early") from error


async def send(writer: asyncio.StreamWriter) -> None:
    """Wait until what was written has left; TimeoutError, and the connection is gone, where nobody takes it."""
    try:
        async with asyncio.timeout(allowance_s(writer.transport.get_write_buffer_size())):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise


async def discard(reader: asyncio.StreamReader) -> None:
    """Read what still comes, for a moment: who is in the middle of a request would not see a refusal else."""
    left, until = DISCARD_BYTES, asyncio.get_running_loop().time() + DISCARD_S
    try:
        async with asyncio.timeout_at(until):
            while left > 0 and (data := await reader.read(HEAD_BYTES)):
                left -= len(data)
    except (ConnectionError, TimeoutError):
        pass


def allowance_s(count: int) -> float:
    """Return how long so many bytes may be on their way."""
    return TRANSFER_S + count / LEAST_RATE


def head(status: int) -> bytes:
    """Return the head of an answer whose body follows in chunks."""
    return f"HTTP/1.1 {status} {REASONS[status]}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Return a piece of the body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(status: int, text: str) -> bytes:
    """Return a short answer, after which the connection ends."""
    body = text.encode(errors="replace")
    lines = (f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode() + body

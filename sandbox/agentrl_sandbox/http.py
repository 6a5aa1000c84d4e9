"""The part of HTTP/1.1 that the sandbox server needs: requests with a length, chunked responses, a deadline for each.

Not a library, because their servers read a body before the token is checked, or wait forever for half a request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

HEAD_BYTES = 1 << 14
HEAD_S = 10.0
IDLE_S = 60.0
"""How long a connection stays open between requests; clients close it earlier."""

TRANSFER_S, MIN_RATE = 10.0, 1 << 20
"""A body or response may take TRANSFER_S, plus one second per MIN_RATE bytes."""

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
    """A request that this server does not accept."""


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    length: int


async def read_head(reader: asyncio.StreamReader, within_s: float) -> Head | None:
    """Read the head of the next request; None at the end or after `within_s`; BadRequestError if it is invalid."""
    try:
        async with asyncio.timeout(within_s):
            text = await reader.readuntil(b"\r\n\r\n")
        first, *lines = text.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = [line.partition(":")[::2] for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()) or len(headers) < len(pairs):
            raise BadRequestError("a request needs a Content-Length, and no header twice")
        return Head(method, path, headers, int(length))
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise BadRequestError("this is not a valid HTTP request") from error


async def read_body(reader: asyncio.StreamReader, length: int) -> bytes:
    """Read a body; TimeoutError if it arrives too slowly, ConnectionError if it ends early."""
    try:
        async with asyncio.timeout(allowance_s(length)):
            return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the body ended early") from error


async def send(writer: asyncio.StreamWriter) -> None:
    """Flush the writer; abort the connection and raise TimeoutError if the client does not read."""
    try:
        async with asyncio.timeout(allowance_s(writer.transport.get_write_buffer_size())):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise


async def discard(reader: asyncio.StreamReader) -> None:
    """Read and drop input for a moment, so that a client in the middle of its request sees the response."""
    left, until = DISCARD_BYTES, asyncio.get_running_loop().time() + DISCARD_S
    try:
        async with asyncio.timeout_at(until):
            while left > 0 and (data := await reader.read(HEAD_BYTES)):
                left -= len(data)
    except (ConnectionError, TimeoutError):
        pass


def allowance_s(count: int) -> float:
    """Return how long the transfer of `count` bytes may take."""
    return TRANSFER_S + count / MIN_RATE


def head(status: int) -> bytes:
    """Return the head of a response whose body follows in chunks."""
    return f"HTTP/1.1 {status} {REASONS[status]}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Return a chunk of the body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(status: int, text: str) -> bytes:
    """Return a complete short response that closes the connection."""
    body = text.encode(errors="replace")
    lines = (f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode() + body

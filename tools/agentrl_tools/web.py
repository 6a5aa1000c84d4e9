"""What the tools that speak HTTP share."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx


@cache
def tls() -> ssl.SSLContext:
    """One TLS context for all connections: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context(trust_env=False)


async def bounded(chunks: AsyncIterator[bytes], most: int) -> bytes:
    """The bytes of a stream; ValueError when they are more than `most`."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) > most:
            raise ValueError(f"the answer has more than {most} bytes")
    return bytes(held)

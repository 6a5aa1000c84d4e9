"""TLS, size limits and text decoding for the HTTP tools."""

from __future__ import annotations

import codecs
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx


@cache
def tls() -> ssl.SSLContext:
    """Return the TLS context of all connections; reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context(trust_env=False)


async def bounded(chunks: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """Read a stream; ValueError if it has more than `max_bytes` bytes."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > max_bytes:
            raise ValueError(f"the response has more than {max_bytes} bytes")
    return bytes(content)


MAX_HEADER = 200
"""Characters of a Content-Type that are parsed."""
CODECS = frozenset(
    codecs.lookup(name).name
    for name in (
        "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
        "latin-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r",
        "shift_jis", "cp932", "euc_jp", "gb2312", "gbk", "gb18030", "big5", "euc_kr", "cp949",
    )
)  # fmt: skip
"""Charsets that a server may name; others, such as punycode, take time quadratic in the text."""


def decoded(content: bytes, content_type: str) -> str:
    """Decode a response by its header's charset if that is in CODECS, else as UTF-8; invalid bytes become �."""
    return content.decode(charset(content_type), errors="replace")


def charset(content_type: str) -> str:
    """Return the codec that a Content-Type names if it is in CODECS, else utf-8."""
    _, _, after = content_type[:MAX_HEADER].lower().partition("charset=")
    name = after.partition(";")[0].strip(" \"'")
    try:
        codec = codecs.lookup(name).name if name.isascii() and name.isprintable() else ""
    except LookupError:
        codec = ""
    return codec if codec in CODECS else "utf-8"

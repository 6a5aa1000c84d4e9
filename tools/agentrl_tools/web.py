"""What the tools that speak HTTP share."""

from __future__ import annotations

import codecs
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


MOST_HEADER = 200
"""Characters of a Content-Type that are looked at."""
CODECS = frozenset(
    codecs.lookup(name).name
    for name in (
        "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
        "latin-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r",
        "shift_jis", "cp932", "euc_jp", "gb2312", "gbk", "gb18030", "big5", "euc_kr", "cp949",
    )
)  # fmt: skip
"""A server names its charset; others, such as punycode, take time that grows with the square of the text."""


def decoded(content: bytes, content_type: str) -> str:
    """The text of an answer, by its header's charset where that is known, else as UTF-8; � for what does not fit."""
    return content.decode(charset(content_type), errors="replace")


def charset(content_type: str) -> str:
    """The codec that a Content-Type names, if it is one of CODECS; else utf-8."""
    _, _, after = content_type[:MOST_HEADER].lower().partition("charset=")
    name = after.partition(";")[0].strip(" \"'")
    try:
        codec = codecs.lookup(name).name if name.isascii() and name.isprintable() else ""
    except LookupError:
        codec = ""
    return codec if codec in CODECS else "utf-8"

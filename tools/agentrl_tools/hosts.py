"""One canonical spelling per host, so that the gate, the resolver and the server all see the same text."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import httpx

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_HOST, MAX_LABEL = 253, 63
LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def canonical(url: httpx.URL) -> httpx.URL:
    """Return the URL with its host in canonical form; ValueError if host or port is invalid."""
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise ValueError(f"{url.port} is not a valid port")
    return url.copy_with(host=canonical_host(url.raw_host.decode("ascii")))


def canonical_host(host: str) -> str:
    """Lower-case a host, drop a final dot, and shorten an IPv6 address in brackets.

    Takes a host as httpx returns it: non-ASCII letters are already in punycode. ValueError if it is invalid.
    """
    if ":" in host and "%" not in host:
        return f"[{ipaddress.IPv6Address(host)}]"
    name = host.lower().removesuffix(".")
    if len(name) > MAX_HOST or not all(map(_is_label, name.split("."))):
        raise ValueError(f"{host[:MAX_HOST]!r} is not a valid host name")
    return name


def entry(text: str) -> str:
    """Canonicalise an entry such as `api.example.com`, `*.example.com` or `localhost:8000`; ValueError if invalid."""
    star, name = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    try:
        url = canonical(httpx.URL(f"x://[{name}]" if name.count(":") > 1 and "[" not in name else f"x://{name}"))
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from error
    if url.userinfo or url.raw_path not in (b"", b"/") or url.fragment or name.endswith("/"):
        raise ValueError("it contains more than a host and a port")
    return star + url.netloc.decode("ascii")


def entries(url: httpx.URL) -> Iterator[str]:
    """Yield every entry that would allow a canonical URL, most specific first."""
    default, host = DEFAULT_PORTS.get(url.scheme), canonical_host(url.raw_host.decode("ascii"))
    port = default if url.port is None else url.port
    for name in _names(host):
        yield f"{name}:{port}"
        if port == default:
            yield name


def _is_label(text: str) -> bool:
    return 0 < len(text) <= MAX_LABEL and LABEL_CHARACTERS.issuperset(text)


def _names(host: str) -> Iterator[str]:
    """Yield `a.b.c`, `*.b.c`, `*.c`."""
    yield host
    while "." in host:
        host = host.partition(".")[2]
        yield f"*.{host}"

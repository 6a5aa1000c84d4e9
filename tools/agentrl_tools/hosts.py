"""One spelling for each host: what a gate allows, a resolver looks up and a server reads is the same text."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import httpx

DEFAULT_PORTS = {"http": 80, "https": 443}
MOST_HOST, MOST_LABEL = 253, 63
SIGNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def canonical(url: httpx.URL) -> httpx.URL:
    """The same address with its host in the one spelling; ValueError for what is no host or no port."""
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise ValueError(f"{url.port} is no port")
    return url.copy_with(host=spelt(url.raw_host.decode("ascii")))


def spelt(host: str) -> str:
    """Lower case, without the dot that may end a name, an IPv6 address short and in brackets.

    A host as httpx has it: letters beyond ASCII are in punycode already. ValueError for what is none.
    """
    if ":" in host and "%" not in host:
        return f"[{ipaddress.IPv6Address(host)}]"
    name = host.lower().removesuffix(".")
    if len(name) > MOST_HOST or not all(map(_is_label, name.split("."))):
        raise ValueError(f"{host[:MOST_HOST]!r} is no name of a host")
    return name


def entry(text: str) -> str:
    """An entry such as `api.example.com`, `*.example.com` or `localhost:8000`, spelt so; ValueError for none."""
    star, name = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    try:
        url = canonical(httpx.URL(f"x://[{name}]" if name.count(":") > 1 and "[" not in name else f"x://{name}"))
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from error
    if url.userinfo or url.raw_path not in (b"", b"/") or url.fragment or name.endswith("/"):
        raise ValueError("there is more than a host and a port")
    return star + url.netloc.decode("ascii")


def entries(url: httpx.URL) -> Iterator[str]:
    """Every entry that would allow a canonical address, the most exact first."""
    own, host = DEFAULT_PORTS.get(url.scheme), spelt(url.raw_host.decode("ascii"))
    port = own if url.port is None else url.port
    for name in _names(host):
        yield f"{name}:{port}"
        if port == own:
            yield name


def _is_label(text: str) -> bool:
    return 0 < len(text) <= MOST_LABEL and SIGNS.issuperset(text)


def _names(host: str) -> Iterator[str]:
    """`a.b.c`, `*.b.c`, `*.c`."""
    yield host
    while "." in host:
        host = host.partition(".")[2]
        yield f"*.{host}"

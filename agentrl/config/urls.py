"""URLs of servers that the user names."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit


def listed(urls: str) -> tuple[str, ...]:
    """Return the comma-separated URLs, without spaces around them and slashes at their ends."""
    return tuple(url.strip().rstrip("/") for url in urls.split(","))


def with_port(host: str, port: int) -> str:
    """Return the part of a URL that names a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_credentials(text: str) -> bool:
    """Return whether a URL in the text may have a user name or password, whose characters need not be escaped."""
    return "@" in text.partition("://")[2]


def fault_of_urls(urls: str, secret: str) -> str:
    """Return why comma-separated URLs cannot be asked, "" if they can. `secret` is the key that takes credentials.

    The URLs of a run are stored with its configuration and its signals, so they contain no credentials. An `@` is
    taken for the end of credentials wherever it is.
    """
    if "@" in urls:
        return f"has a user name or password in its url, which the run would store: leave them out, and set {secret}"
    fault = next(filter(None, map(_fault, listed(urls))), "")
    return f"has a url {fault}; write for example http://127.0.0.1:5000" if fault else ""


def is_here(host: str) -> bool:
    """Return whether a host is this machine, in any spelling of the loopback or of the unspecified address."""
    name = host.rstrip(".").lower()
    address = _address(name)
    address = getattr(address, "ipv4_mapped", None) or address
    return name == "localhost" if address is None else address.is_loopback or address.is_unspecified


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that C libraries read in a name, short ones such as 127.1 included; None if there is none."""
    with suppress(ValueError):
        return ipaddress.ip_address(name)
    with suppress(ValueError, OSError):
        return ipaddress.ip_address(socket.inet_aton(name))
    return None


def _fault(url: str) -> str:
    """Return why a URL cannot be asked, "" if it can."""
    if not url.startswith(("http://", "https://")):
        return "without http:// or https://"
    if " " in url or not url.isprintable():
        return "with white space or control characters"
    if "?" in url or "#" in url:
        return "with a query or fragment"
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    return "" if is_complete else "without a valid host and port"

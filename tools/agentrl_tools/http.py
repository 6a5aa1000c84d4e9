"""HTTP for models: only to hosts that are allowed, at addresses that were checked, and only so much for so long."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Sequence
from typing import Literal

import httpx

from agentrl.env import BadCallError, tool
from agentrl.errors import ConfigError
from agentrl_tools.errors import ServiceError
from agentrl_tools.web import bounded, tls

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
UNICAST = ipaddress.ip_network("2000::/3")
"""What IPv6 has of public addresses. NAT64 and the other ways to write an IPv4 address lie outside."""
TUNNELS = [ipaddress.ip_network(text) for text in ("2002::/16", "2001::/32")]
"""Those inside that hide an IPv4 address (6to4, Teredo)."""
GONE = (502, 503, 504)
DEFAULT_PORTS = {"http": 80, "https": 443}


class Http:
    """Offers `http`, to the hosts in `allow`: `api.example.com`, `*.example.com`, `localhost:8000`.

    Every hop of a redirect passes the same checks: scheme, host and port are allowed, and every address of the host is
    public or in `networks` (such as `127.0.0.0/8`). The connection goes to the very address that was checked.
    """

    def __init__(
        self,
        allow: Collection[str],
        *,
        networks: Sequence[str] = (),
        methods: Collection[str] = ("GET",),
        timeout_s: float = 20.0,
        max_bytes: int = 1_000_000,
        max_characters: int = 10_000,
    ) -> None:
        self.gate = Gate(allow, networks)
        self.methods, self.timeout_s = methods, timeout_s
        self.max_bytes, self.max_characters = max_bytes, max_characters

    @tool
    async def http(self, url: str, method: Literal["GET", "POST"] = "GET", body: str = "") -> str:
        """Fetch a URL; returns the status and the text of the answer.

        Args:
            url: an http or https address
            method: GET or POST
            body: what to send with a POST
        """
        if method not in self.methods:
            raise BadCallError(f"{method} is not allowed; use {' or '.join(sorted(self.methods))}")
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._fetch(method, url, body)
        except TimeoutError as error:
            raise ServiceError(f"{method} {url}: no answer within {self.timeout_s:g} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.DecodingError) as error:
            raise BadCallError(f"{url[:200]}: {error}") from error
        except httpx.HTTPError as error:
            raise ServiceError(f"{method} {url}: {type(error).__name__}: {error}") from error

    async def _fetch(self, method: str, url: str, body: str) -> str:
        headers = {"Accept-Encoding": "identity", "User-Agent": "agentrl"}
        async with (
            httpx.AsyncClient(
                transport=CheckedTransport(self.gate), follow_redirects=True, max_redirects=5, trust_env=False
            ) as client,
            client.stream(method, url, content=body or None, headers=headers, timeout=self.timeout_s) as response,
        ):
            if response.status_code in GONE:
                raise ServiceError(f"{method} {url}: {response.status_code} {response.reason_phrase}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise BadCallError("the answer is compressed, which is not read")
            return self._text(response, await self._content(response))

    async def _content(self, response: httpx.Response) -> bytes:
        try:
            return await bounded(response.aiter_raw(), self.max_bytes)
        except ValueError as error:
            raise BadCallError(str(error)) from error

    def _text(self, response: httpx.Response, content: bytes) -> str:
        text = content.decode(response.charset_encoding or "utf-8", errors="replace")
        more = len(text) - self.max_characters
        cut = f"\n[{more} more characters]" if more > 0 else ""
        return f"{response.status_code} {response.reason_phrase}\n{text[: self.max_characters]}{cut}"


class Gate:
    """Which hosts may be asked, and at which addresses."""

    def __init__(self, allow: Collection[str], networks: Sequence[str] = ()) -> None:
        if not allow:
            raise ConfigError("Http: name the hosts that may be asked, such as allow=['api.example.com']")
        self.allow = {entry.lower() for entry in allow}
        try:
            self.networks = [ipaddress.ip_network(text) for text in networks]
        except ValueError as error:
            raise ConfigError(f"Http: networks: {error}; write 127.0.0.0/8 for instance") from error

    async def admit(self, url: httpx.URL) -> str:
        """The address to connect to; BadCallError where the model asks for what it may not have."""
        port = url.port or DEFAULT_PORTS.get(url.scheme)
        if port is None:
            raise BadCallError(f"{url.scheme!r} is not allowed; use http or https")
        if not self._is_allowed(url, port):
            raise BadCallError(f"{url.host}:{port} is not allowed; allowed: {', '.join(sorted(self.allow))}")
        addresses = await self._resolve(url.host, port)
        refused = [str(address) for address in addresses if not self.is_open(address)]
        if refused:
            raise BadCallError(f"{url.host} is at {refused[0]}, which is not a public address")
        return str(addresses[0])

    def is_open(self, address: Address) -> bool:
        """True for an address that is public, or in a network that was allowed."""
        real = getattr(address, "ipv4_mapped", None) or address
        if any(real in network for network in self.networks):
            return True
        if real.version == 6 and (real not in UNICAST or any(real in network for network in TUNNELS)):
            return False
        return real.is_global and not real.is_multicast

    def _is_allowed(self, url: httpx.URL, port: int) -> bool:
        host = url.host.lower().rstrip(".")
        names = {host, *(f"*.{host.split('.', n)[n]}" for n in range(1, host.count(".") + 1))}
        if port == DEFAULT_PORTS[url.scheme]:
            return bool(self.allow & (names | {f"{name}:{port}" for name in names}))
        return bool(self.allow & {f"{name}:{port}" for name in names})

    def _is_named(self, host: str) -> bool:
        """Whether the configuration names this very host; under `*.` the model makes up names."""
        return any(entry.partition(":")[0] == host.lower().rstrip(".") for entry in self.allow)

    async def _resolve(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            is_invented = isinstance(error, UnicodeError) or (
                error.errno == socket.EAI_NONAME and not self._is_named(host)
            )
            kind = BadCallError if is_invented else ServiceError
            raise kind(f"{host} has no address: {error}") from error
        return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


class CheckedTransport(httpx.AsyncBaseTransport):
    """Connects each request, the first and every redirect, to the address that the gate has just checked.

    The host stays in the Host header and in the TLS handshake. Connections are not kept: one that was opened for a host
    must not serve another at the same address.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(verify=tls(), trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        address = await self._gate.admit(request.url)
        checked = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )
        return await self._inner.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()

"""HTTP for models: allowed hosts only, checked addresses only, with limits on size and time."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Literal

import httpx

from agentrl.env import BadCallError, tool
from agentrl.errors import ConfigError
from agentrl_tools import hosts
from agentrl_tools.errors import ServiceError
from agentrl_tools.hosts import DEFAULT_PORTS
from agentrl_tools.known_good import works
from agentrl_tools.web import bounded, decoded, tls

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
UNICAST = ipaddress.ip_network("2000::/3")
"""Public IPv6 addresses. NAT64 and other encodings of IPv4 addresses are outside this range."""
TUNNELS = [ipaddress.ip_network(text) for text in ("2002::/16", "2001::/32", "192.88.99.0/24")]
"""Public ranges that lead elsewhere: they embed an IPv4 address (6to4, Teredo) or are 6to4 relays."""
GONE = (502, 503, 504)
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "agentrl"}
MAX_REDIRECTS = 5
MAX_URL, MAX_SHOWN = 8192, 200
"""Maximum characters of a URL, and of the part that an error message shows."""
MALFORMED = (
    httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.DecodingError, httpx.LocalProtocolError, UnicodeError,
)  # fmt: skip
"""Errors that the request itself causes, whatever the state of the host."""


class Http:
    """Toolset with `http` for the hosts in `allow`: `api.example.com`, `*.example.com`, `localhost:8000`.

    Every redirect passes the same checks: scheme, host and port must be allowed, and every address of the host must be
    public or in `networks` (such as `127.0.0.0/8`). The connection is made to exactly the address that was checked.

    If a request fails, a known-good request with the same timeout decides whose fault it is: if that succeeds, it is
    the model's. Its URL is `known_good[entry]`, by default `/` of the host over http or https. With `*.` the model
    picks the host, so a failure is the model's unless `known_good` has a URL for that entry.
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
        known_good: Mapping[str, str] | None = None,
    ) -> None:
        self.gate = Gate(allow, networks, known_good)
        self.methods, self.timeout_s = methods, timeout_s
        self.max_bytes, self.max_characters = max_bytes, max_characters

    @tool
    async def http(self, url: str, method: Literal["GET", "POST"] = "GET", body: str = "") -> str:
        """Fetch a URL; returns the status and the text of the response.

        Args:
            url: an http or https URL
            method: GET or POST
            body: the body of a POST
        """
        if method not in self.methods:
            raise BadCallError(f"{method} is not allowed; use {' or '.join(sorted(self.methods))}")
        if len(url) > MAX_URL:
            raise BadCallError(f"the URL is longer than {MAX_URL} characters")
        transport = CheckedTransport(self.gate)
        try:
            async with asyncio.timeout(self.timeout_s):
                status, text = await self._fetch(transport, method, url, body)
        except MALFORMED as error:
            raise BadCallError(f"{url[:MAX_SHOWN]}: {error}") from error
        except TimeoutError as error:
            raise await self._blamed(transport.last_url, f"no answer within {self.timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise await self._blamed(transport.last_url, f"{type(error).__name__}: {error}") from error
        if status in GONE and not await self._is_well(transport.last_url):
            raise ServiceError(f"{method} {url[:MAX_SHOWN]}: status {status}, and the known-good request fails too")
        return text

    async def _fetch(self, transport: CheckedTransport, method: str, url: str, body: str) -> tuple[int, str]:
        """Follow redirects without reading their bodies; return the status and text of the final response."""
        async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=self.timeout_s) as client:
            request = client.build_request(method, url, content=body or None, headers=HEADERS)
            for _ in range(MAX_REDIRECTS + 1):
                async with aclosing(await client.send(request, stream=True)) as response:
                    if response.next_request is None:
                        return response.status_code, await self._text(response)
                    request = response.next_request
        raise BadCallError(f"{url[:MAX_SHOWN]}: more than {MAX_REDIRECTS} redirects")

    async def _blamed(self, url: httpx.URL, what: str) -> BadCallError | ServiceError:
        """Return the error for a request that failed at `url`."""
        kind = BadCallError if await self._is_well(url) else ServiceError
        return kind(f"{str(url)[:MAX_SHOWN]}: {what[:MAX_SHOWN]}")

    async def _is_well(self, url: httpx.URL) -> bool:
        """Return whether the host answers a known-good request, or was picked by the model."""
        addresses = self.gate.known_good_of(url)
        return not addresses or await works(addresses, lambda: self._known_good(addresses), self.timeout_s)

    async def _known_good(self, addresses: Sequence[httpx.URL]) -> None:
        """Request all addresses at once and return after the first response; httpx.HTTPError if none responds."""
        transport = CheckedTransport(self.gate)
        async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=self.timeout_s) as client:
            tasks = [asyncio.ensure_future(_answers(client, address)) for address in addresses]
            try:
                for response in asyncio.as_completed(tasks):
                    if await response:
                        return
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        raise httpx.ConnectError(f"{addresses[0].host} does not respond")

    async def _text(self, response: httpx.Response) -> str:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise BadCallError("the response is compressed; only uncompressed responses are read")
        try:
            content = await bounded(response.aiter_raw(), self.max_bytes)
        except ValueError as error:
            raise BadCallError(str(error)) from error
        text = decoded(content, response.headers.get("content-type", ""))
        more = len(text) - self.max_characters
        cut = f"\n[{more} more characters]" if more > 0 else ""
        status = f"{response.status_code} {response.reason_phrase[:MAX_SHOWN]}"
        return f"{status}\n{text[: self.max_characters]}{cut}"


class Gate:
    """Rules about which hosts may be requested, and at which addresses."""

    def __init__(
        self, allow: Collection[str], networks: Sequence[str] = (), known_good: Mapping[str, str] | None = None
    ) -> None:
        if not allow:
            raise ConfigError("Http: name the allowed hosts, for example allow=['api.example.com']")
        self.allow = {_entry("allow", text) for text in allow}
        try:
            self.networks = [ipaddress.ip_network(text) for text in networks]
        except ValueError as error:
            raise ConfigError(f"Http: networks: {error}; write for example 127.0.0.0/8") from error
        self.known_good = dict(self._own(_entry("known_good", text), url) for text, url in (known_good or {}).items())

    def _own(self, entry: str, address: str) -> tuple[str, httpx.URL]:
        """Return an entry and its known-good URL, which the entry must cover."""
        try:
            url = hosts.canonical(httpx.URL(address))
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"Http: known_good: {address!r}: {error}") from error
        if entry not in self.entries(url):
            raise ConfigError(
                f"Http: known_good: {address!r} is not a URL of {entry!r}, or {entry!r} is missing from `allow`"
            )
        return entry, url

    async def admit(self, url: httpx.URL) -> str:
        """Return the address to connect to for a canonical URL; BadCallError if it is not allowed."""
        if url.scheme not in DEFAULT_PORTS:
            raise BadCallError(f"{url.scheme!r} is not allowed; use http or https")
        host, port = url.raw_host.decode("ascii"), url.port or DEFAULT_PORTS[url.scheme]
        if not self.entries(url):
            raise BadCallError(f"{host[:MAX_SHOWN]}:{port} is not allowed; allowed: {', '.join(sorted(self.allow))}")
        addresses = await self._resolve(host, port)
        refused = [str(address) for address in addresses if not self.is_open(address)]
        if refused:
            raise BadCallError(f"{host} resolves to {refused[0]}, which is not a public address")
        return str(addresses[0])

    def is_open(self, address: Address) -> bool:
        """Return whether an address is public or in an allowed network."""
        real = getattr(address, "ipv4_mapped", None) or address
        if any(real in network for network in self.networks):
            return True
        if any(real in network for network in TUNNELS) or (real.version == 6 and real not in UNICAST):
            return False
        return real.is_global and not real.is_multicast

    def known_good_of(self, url: httpx.URL) -> tuple[httpx.URL, ...]:
        """Return URLs of which a working host answers at least one; empty if the model picked the host."""
        entries = self.entries(url) if url.host else []
        for entry in entries:
            if entry in self.known_good:
                return (self.known_good[entry],)
        own = next((entry for entry in entries if not entry.startswith("*.")), None)
        return () if own is None else tuple(httpx.URL(f"{scheme}://{own}/") for scheme in DEFAULT_PORTS)

    def entries(self, url: httpx.URL) -> list[str]:
        """Return the entries of `allow` that cover a canonical URL, most specific first."""
        return [entry for entry in hosts.entries(url) if entry in self.allow]

    async def _resolve(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise BadCallError(f"{host} is not a valid host name: {error}") from error
        except socket.gaierror as error:
            raise httpx.ConnectError(f"{host} has no address: {error}") from error
        return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in infos]


def _entry(option: str, text: str) -> str:
    try:
        return hosts.entry(text)
    except ValueError as error:
        example = "write a host such as api.example.com, *.example.com or localhost:8000"
        raise ConfigError(f"Http: {option}: {text!r}: {error}; {example}") from error


class CheckedTransport(httpx.AsyncBaseTransport):
    """Transport that connects every request, including redirects, to the address that the gate has just checked.

    The Host header and the TLS handshake keep the canonical host name. Connections are not reused, because one opened
    for a host must not serve another host at the same address. `last_url` is the URL of the last hop.
    """

    def __init__(self, gate: Gate) -> None:
        self.last_url = httpx.URL()
        self._gate = gate
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(verify=tls(), trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        self.last_url = url = _canonical(request.url)
        address = await self._gate.admit(url)
        headers, opened = request.headers.copy(), list[Any]()
        headers["Host"] = url.netloc.decode("ascii")
        checked = httpx.Request(
            request.method,
            url.copy_with(host=address),
            headers=headers,
            stream=request.stream,
            extensions={
                **request.extensions,
                "sni_hostname": url.raw_host.decode("ascii"),
                "trace": partial(_note, opened),
            },
        )
        try:
            return await self._inner.handle_async_request(checked)
        except asyncio.CancelledError:
            for stream in opened:  # httpcore leaks a connection that is cancelled during the TLS handshake
                await stream.aclose()
            raise

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


async def _answers(client: httpx.AsyncClient, address: httpx.URL) -> bool:
    with suppress(httpx.HTTPError):
        async with client.stream("GET", address, headers=HEADERS) as response:
            return response.status_code not in GONE
    return False


def _canonical(url: httpx.URL) -> httpx.URL:
    try:
        return hosts.canonical(url)
    except ValueError as error:
        raise BadCallError(str(error)) from error


async def _note(opened: list[Any], event: str, info: dict[str, Any]) -> None:
    """Collect the connections that httpcore reports."""
    if event == "connection.connect_tcp.complete":
        opened.append(info["return_value"])

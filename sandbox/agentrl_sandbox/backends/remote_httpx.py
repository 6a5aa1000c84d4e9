"""`remote`: sandboxes of another machine over HTTP; agentrl_sandbox.server is the other side.

Enforced: what the server's backend enforces. A sandbox lives as long as one connection to the server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import asdict
from weakref import WeakKeyDictionary

import httpx

from agentrl_sandbox import errors
from agentrl_sandbox.answer import Answer
from agentrl_sandbox.errors import FullError, LostError, PackagesError, SandboxError, UnavailableError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.types import ExecResult, Limits

CREATE_S = 60.0
CONNECT_S = 10.0
KINDS = {name: getattr(errors, name) for name in ("ClosedError", "LostError", "RefusedError", "SandboxError")}


class RemoteBackend:
    """Backend of sandboxes on a server."""

    name = "remote"

    def __init__(self, url: str, token: str, certificate: str = "", packages: tuple[str, ...] = ()) -> None:
        """Create a backend; `certificate` is a PEM file to trust if no public authority signed the server's."""
        self._tls, self._packages = _tls(certificate), packages
        self._url, self._headers = url.rstrip("/"), {"Authorization": f"Bearer {token}"}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def describe(self) -> str:
        """Name the server."""
        return f"sandboxes of {self._url}"

    def check(self) -> None:
        """Request the server synchronously; UnavailableError if none answers at this address with this token."""
        try:
            answer = httpx.get(
                f"{self._url}/sandboxes", headers=self._headers, timeout=CONNECT_S, verify=self._tls, trust_env=False
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = f"no server answers at {self._url!r} ({str(error) or type(error).__name__})"
            raise UnavailableError(f"remote: {why}. Start `python -m agentrl_sandbox.server` there") from error
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise UnavailableError(f"remote: {answer.text}")
        if "POST to /sandboxes" not in answer.text:
            raise UnavailableError(f"remote: {self._url} (status {answer.status_code}) is not a sandbox server")

    async def create(self, limits: Limits) -> OrderedSandbox:
        """Create a sandbox on the server."""
        link = RemoteLink(self._client())
        name = await link.open(limits, self._packages)
        return OrderedSandbox(name, link, limits)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            timeout = httpx.Timeout(None, connect=CONNECT_S)  # every call has its own deadline
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._clients[loop] = httpx.AsyncClient(
                base_url=self._url,
                headers=self._headers,
                timeout=timeout,
                limits=limits,
                verify=self._tls,
                trust_env=False,
            )
        return self._clients[loop]


class RemoteLink:
    """Link to one sandbox of a server."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client, self._loop = client, asyncio.get_running_loop()
        self._name: asyncio.Future[str] = self._loop.create_future()
        self._hold: asyncio.Task[None] | None = None

    async def open(self, limits: Limits, packages: tuple[str, ...] = ()) -> str:
        """Have the server create the sandbox; return its id."""
        request = asdict(limits) | ({"packages": packages} if packages else {})
        self._hold = self._loop.create_task(self._keep(json.dumps(request).encode()))
        try:
            async with asyncio.timeout(CREATE_S):
                return await asyncio.shield(self._name)
        except TimeoutError:
            raise LostError(f"remote: no sandbox within {CREATE_S} s") from None
        finally:
            if not self._name.done() or self._name.exception():
                self.shut()

    async def carry(self, order: bytes, answer: Answer) -> ExecResult:
        """Send an order and collect its answer; LostError if the server or the sandbox is gone."""
        path = f"/sandboxes/{self._name.result()}"
        try:
            async with self._client.stream("POST", path, content=order) as response:
                await _check(response)
                async for kind, payload in _frames(response):
                    if kind == wire.FAILED:
                        raise _error(payload)
                    if (result := answer.take(kind, payload)) is not None:
                        return result
        except httpx.HTTPError as error:
            raise LostError(f"remote: {type(error).__name__}: {error}") from error
        raise LostError("remote: the answer is incomplete")

    async def is_out_of_memory(self) -> bool:
        """Return False: the server has checked already."""
        return False

    def is_open(self) -> bool:
        """Return False if the server has closed the sandbox."""
        return self._hold is not None and not self._hold.done()

    def shut(self) -> None:
        """Close the connection, so that the server ends the sandbox."""
        if self._hold and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hold.cancel)

    async def remove(self) -> None:
        """Wait until the connection is closed; the server does the rest."""
        if self._hold and self._loop is asyncio.get_running_loop():
            self._hold.cancel()
            await asyncio.wait({self._hold}, timeout=CONNECT_S)

    async def _keep(self, request: bytes) -> None:
        """Hold the response open that keeps the sandbox alive."""
        try:
            async with self._client.stream("POST", "/sandboxes", content=request) as response:
                await _check(response)
                async for line in response.aiter_lines():
                    if not self._name.done():
                        self._name.set_result(line)
        except (httpx.HTTPError, SandboxError) as error:
            if not self._name.done():
                lost = error if isinstance(error, SandboxError) else UnavailableError(f"remote: {error!r}")
                self._name.set_exception(lost)


def _tls(certificate: str) -> ssl.SSLContext:
    try:
        return (
            ssl.create_default_context(cafile=certificate) if certificate else httpx.create_ssl_context(trust_env=False)
        )
    except OSError as error:
        raise UnavailableError(f"remote: {certificate} contains no valid certificate: {error}") from error


async def _check(response: httpx.Response) -> None:
    """Raise SandboxError for an error response."""
    if response.status_code != httpx.codes.OK:
        text = (await response.aread()).decode(errors="replace")
        kind = {400: UnavailableError, 401: UnavailableError, 409: PackagesError, 503: FullError}.get(
            response.status_code, LostError
        )
        raise kind(f"remote: {text}")


async def _frames(response: httpx.Response) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield kind and payload of every frame; LostError if one is invalid."""
    received = bytearray()
    async for data in response.aiter_raw():
        received += data
        while len(received) >= wire.HEADER_BYTES:
            try:
                length, kind, _ = wire.parse_header(bytes(received[: wire.HEADER_BYTES]))
            except ValueError as error:
                raise LostError(f"remote: {error}") from error
            end = wire.HEADER_BYTES + length
            if len(received) < end:
                break
            yield kind, bytes(received[wire.HEADER_BYTES : end])
            del received[:end]


def _error(payload: bytes) -> SandboxError:
    """Return the server's error."""
    name, text = (field.decode(errors="replace") for field in wire.unpack(payload))
    kind: type[SandboxError] = KINDS.get(name, SandboxError)
    return kind(f"remote: {text}")

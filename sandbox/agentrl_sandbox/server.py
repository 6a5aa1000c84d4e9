"""python -m agentrl_sandbox.server: sandboxes of this machine for other machines of a cluster, over HTTP with a token.

The token comes from AGENTRL_SANDBOX_TOKEN. A sandbox lives as long as the response to the request that created it stays
open, so it ends when its client ends, is killed or loses the connection. Without --certificate and --key everything,
including the token, is sent unencrypted: listen only on a private network then.

Clients without a token cost little: no body is read before the token is checked, and slow or excess connections are
dropped. Clients share the server's sandboxes (`--most`), limits (`--largest`), connections and transfer buffers.

    POST /sandboxes        limits as JSON, and optionally `packages`
                                            its id, then a response that stays open
    POST /sandboxes/ID     an order         frames of output, then the result (see inside.wire) or an error
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import logging
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from agentrl_sandbox import gc, http
from agentrl_sandbox.answer import FRAMES
from agentrl_sandbox.budget import Budget
from agentrl_sandbox.choice import TOKEN, best, choose
from agentrl_sandbox.connections import Connections
from agentrl_sandbox.errors import PackagesError, SandboxError
from agentrl_sandbox.http import BadRequestError, Head
from agentrl_sandbox.inside import wire
from agentrl_sandbox.largest import changed, check, largest_here, memory_here
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.packages import checked
from agentrl_sandbox.types import Backend, ExecResult, Limits, Stream

SHARE, MIN_BYTES, BUSY_S = 8, 512 << 20, 30.0
"""Orders and answers in transfer may each use 1/SHARE of this machine's memory; more wait for at most BUSY_S."""

PER_SANDBOX, SPARE = 4, 64
"""Connections with a token: one holds a sandbox open; others carry orders, wait or are idle."""

REQUEST_BYTES, MAX_DEPTH = 1 << 16, 16
QUEUE_S = 5.0
"""How long a client waits for a free sandbox before it gets status 503; a pool then retries."""

MIN_TOKEN = 16
log = logging.getLogger("agentrl.sandbox")


class StatusError(Exception):
    """A rejected request: the status and text of the response, which closes the connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Server:
    """Server of the sandboxes of one backend for clients with the token."""

    def __init__(
        self,
        backend: Backend,
        token: str,
        most: int = 256,
        packages: Sequence[str] = (),
        package_backend: Backend | None = None,
        largest: Limits | None = None,
    ) -> None:
        """Create a server; `package_backend` serves clients that request some of `packages`.

        `largest` bounds the limits that clients may request; by default what this machine can bear.
        """
        if len(token) < MIN_TOKEN:
            raise SandboxError(f"{TOKEN} has {len(token)} characters; set it to {MIN_TOKEN} or more random ones")
        self._backend, self._token, self._most = backend, token, most
        self._packages, self._package_backend = checked(packages), package_backend or backend
        self._sandboxes: dict[str, OrderedSandbox] = {}
        self._slots = asyncio.Semaphore(most)
        self._removals: set[asyncio.Task[None]] = set()
        self._largest = largest or largest_here()
        self._most_connections = PER_SANDBOX * most + SPARE
        self._connections = Connections(self._serve_connection, self._most_connections)
        in_flight = max(memory_here() // SHARE, MIN_BYTES)
        self._orders, self._answers = Budget(in_flight), Budget(in_flight)

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port."""
        try:
            async with self._connections.listening(host, port, tls) as bound:
                yield bound
        finally:
            await asyncio.gather(*self._removals, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of a connection until it ends or one is rejected."""
        within_s = http.HEAD_S
        try:
            while head := await http.read_head(reader, within_s):
                await self._serve(head, reader, writer)
                await http.send(writer)
                within_s = http.IDLE_S
        except BadRequestError as error:
            await _refuse(400, str(error), reader, writer)
        except StatusError as error:
            await _refuse(error.status, str(error), reader, writer)

    async def _serve(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request; its body is not read before its head has been checked."""
        token = head.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise StatusError(401, f"wrong token: set {TOKEN} to the server's")
        if not self._connections.admit():
            raise StatusError(503, f"this server already has {self._most_connections} connections")
        name = head.path.removeprefix("/sandboxes").strip("/")
        if head.method != "POST" or not head.path.startswith("/sandboxes"):
            raise StatusError(404, "POST to /sandboxes or /sandboxes/ID")
        if head.length > (allowed := wire.MAX_BYTES if name else REQUEST_BYTES):
            raise StatusError(413, f"the body has {head.length} bytes; this server accepts at most {allowed}")
        if not name:
            await self._hold(await http.read_body(reader, head.length), reader, writer)
            return
        sandbox = self._sandboxes.get(name)
        if sandbox is None:
            raise StatusError(404, f"no sandbox {name}")
        async with _free(self._orders, head.length):
            await self._order(sandbox, await http.read_body(reader, head.length), writer)

    async def _hold(self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Create a sandbox and keep it until the client disconnects; clients of a full server wait in order."""
        limits, packages = self._requested(body)
        if missing := [name for name in packages if name not in self._packages]:
            fix = f"Start it with --packages {' '.join(dict.fromkeys([*self._packages, *packages]))}"
            raise StatusError(409, f"this server does not have the package {', '.join(missing)}. {fix}")
        try:
            async with asyncio.timeout(QUEUE_S):
                await self._slots.acquire()
        except TimeoutError:
            raise StatusError(503, f"this server already has {self._most} sandboxes") from None
        sandbox: OrderedSandbox | None = None
        try:
            if reader.at_eof():  # the client has disconnected
                raise ConnectionAbortedError
            made = await (self._package_backend if packages else self._backend).create(limits)
            assert isinstance(made, OrderedSandbox)
            sandbox = made
            self._sandboxes[sandbox.id] = sandbox
            writer.write(http.head(200) + http.chunk(f"{sandbox.id}\n".encode()))
            await http.send(writer)
            await reader.read(1)  # clients send nothing more, so this waits for the end; TCP keepalive bounds it
        except SandboxError as error:
            raise StatusError(503, str(error)) from error
        finally:
            self._slots.release()
            if sandbox is not None:
                del self._sandboxes[sandbox.id]
                await self._remove(sandbox)
        raise ConnectionAbortedError

    async def _remove(self, sandbox: OrderedSandbox) -> None:
        """Close a sandbox, even if this connection is cancelled in the meantime."""
        removal = asyncio.create_task(sandbox.close())
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        await asyncio.shield(removal)

    async def _order(self, sandbox: OrderedSandbox, order: bytes, writer: asyncio.StreamWriter) -> None:
        """Carry out an order and send its output and result."""

        def on_output(stream: Stream, data: bytes) -> None:
            writer.write(http.chunk(wire.frame(FRAMES[stream], data)))

        words, stdin, limits = self._parse(order)
        async with _free(self._answers, limits.output_bytes):
            writer.write(http.head(200))
            try:
                result = await sandbox.order(words, stdin, limits, on_output)
                last = wire.frame(wire.END, _fields(result))
            except (SandboxError, ValueError) as error:
                last = wire.frame(wire.FAILED, wire.pack(type(error).__name__, str(error)))
            writer.write(http.chunk(last) + http.chunk(b""))
            await http.send(writer)

    def _requested(self, body: bytes) -> tuple[Limits, tuple[str, ...]]:
        """Parse the limits and packages that a client requests."""
        try:
            if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
                raise ValueError("the JSON is nested too deeply; send an object of numbers and a list of names")
            fields = json.loads(body)
            packages = checked(fields.pop("packages", ()))
            return check(Limits(**fields), self._largest), packages
        except (ValueError, TypeError, AttributeError, OverflowError, PackagesError) as error:
            raise BadRequestError(f"invalid limits: {error}") from error

    def _parse(self, order: bytes) -> tuple[tuple[str | bytes, ...], bytes, Limits]:
        """Parse an order into its verb and arguments, stdin, and limits."""
        try:
            verb, wall_s, cpu_s, output_bytes, _, stdin, *words = wire.unpack(order)
            limits = replace(Limits(), wall_s=float(wall_s), cpu_s=float(cpu_s), output_bytes=int(output_bytes))
            return (verb, *words), stdin, check(limits, self._largest)
        except (ValueError, OverflowError) as error:
            raise BadRequestError(f"invalid order: {error}") from error


async def _refuse(status: int, text: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send an error as the last response of a connection."""
    writer.write(http.whole(status, text))
    await http.send(writer)
    await http.discard(reader)


@asynccontextmanager
async def _free(budget: Budget, count: int) -> AsyncIterator[None]:
    """Hold `count` bytes of a budget; StatusError if they are not free in time."""
    try:
        await budget.take(count, BUSY_S)
    except TimeoutError:
        raise StatusError(503, f"this server is too busy to transfer {count} more bytes") from None
    try:
        yield
    finally:
        budget.give(count)


def _fields(result: ExecResult) -> bytes:
    """Encode a result as a warden does."""
    hits = ",".join(sorted(result.hits))
    times = (int(result.wall_s * 1e6), int(result.cpu_s * 1e6))
    return wire.pack(result.exit_code, hits, *times, result.peak_memory_bytes, int(result.is_state_lost), 1)


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m agentrl_sandbox.server", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--most", type=int, default=256, help="maximum number of sandboxes")
    parser.add_argument("--packages", nargs="+", default=[], help="installed packages that programs can import")
    parser.add_argument("--largest", nargs="+", default=[], metavar="LIMIT=NUMBER", help="largest limits for clients")
    parser.add_argument("--certificate", help="PEM file; together with --key it enables TLS")
    parser.add_argument("--key", help="PEM file")
    arguments = parser.parse_args()
    if bool(arguments.certificate) != bool(arguments.key):
        parser.error("--certificate and --key belong together: pass both or neither")
    try:
        arguments.largest = changed(largest_here(), arguments.largest)
    except ValueError as error:
        parser.error(f"--largest: {error}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        asyncio.run(_run(arguments))
    except (SandboxError, OSError) as error:
        sys.exit(f"error: {error}")


async def _run(arguments: argparse.Namespace) -> None:
    for line in gc.collect():
        log.info("%s", line)
    # A local backend, even if the environment names a server: that may be this one.
    backend = best() if arguments.backend == "auto" else choose(arguments.backend)
    package_backend = choose(backend.name, arguments.packages) if arguments.packages else None
    tls = None
    if arguments.certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            tls.load_cert_chain(arguments.certificate, arguments.key)
        except OSError as error:
            raise SandboxError(f"cannot use {arguments.certificate} with {arguments.key}: {error}") from error
    elif arguments.host != "127.0.0.1":
        log.warning("no certificate: token and programs are sent over the network unencrypted")
    server = Server(
        backend, os.environ.get(TOKEN, ""), arguments.most, arguments.packages, package_backend, arguments.largest
    )
    async with server.listening(arguments.host, arguments.port, tls) as port:
        log.info("sandboxes by %s (%s) on %s:%s", backend.name, backend.describe(), arguments.host, port)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


if __name__ == "__main__":
    main()

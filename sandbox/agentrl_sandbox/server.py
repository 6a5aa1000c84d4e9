"""python -m agentrl_sandbox.server: sandboxes of this machine for other machines of a cluster, by HTTP and a token.

The token comes from AGENTRL_SANDBOX_TOKEN. A sandbox lives as long as the answer to the request that made it stays
open: a client that ends, is killed or loses its way takes its sandboxes along. Without --certificate and --key
everything, the token too, goes over the wire in the clear: then listen on a private network only.

    POST /sandboxes        limits as JSON, and `packages` where programs need some
                                            its id, then an answer that stays open
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
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from agentrl_sandbox import gc, http
from agentrl_sandbox.answer import FRAMES
from agentrl_sandbox.choice import TOKEN, best, choose
from agentrl_sandbox.errors import PackagesError, SandboxError
from agentrl_sandbox.http import BadRequestError, Request
from agentrl_sandbox.inside import wire
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.packages import checked
from agentrl_sandbox.types import Backend, ExecResult, Limits, Stream

LONGEST_S = 3600.0
QUEUE_S = 5.0
"""How long a client waits for a place before it is told that there is none; a pool then asks again."""

FLUSH_S = 10.0
LEAST_TOKEN = 16
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
log = logging.getLogger("agentrl.sandbox")


class Server:
    """Serves the sandboxes of one backend to whoever has the token."""

    def __init__(
        self,
        backend: Backend,
        token: str,
        most: int = 256,
        packages: Sequence[str] = (),
        lender: Backend | None = None,
    ) -> None:
        """`lender` was made with these packages, for clients that ask for some of them."""
        if len(token) < LEAST_TOKEN:
            raise SandboxError(f"{TOKEN} has {len(token)} characters; set it to {LEAST_TOKEN} or more random ones")
        self._backend, self._token, self._most = backend, token, most
        self._packages, self._lender = checked(packages), lender or backend
        self._sandboxes: dict[str, OrderedSandbox] = {}
        self._places = asyncio.Semaphore(most)
        self._removals: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve while the context is open; gives the port."""
        connections: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if task := asyncio.current_task():
                connections.add(task)
                task.add_done_callback(connections.discard)
            with suppress(asyncio.CancelledError):  # asyncio of Python 3.11 takes a cancelled connection for a crash
                await self._converse(reader, writer)

        server = await asyncio.start_server(connected, host, port, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            await asyncio.gather(*self._removals, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every request of a connection."""
        _watch_over(writer)
        try:
            while request := await http.read_request(reader):
                await self._serve(request, reader, writer)
                await writer.drain()
        except BadRequestError as error:
            writer.write(http.whole(400, str(error)))
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await writer.wait_closed()

    async def _serve(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            writer.write(http.whole(401, f"wrong token: set {TOKEN} to the server's"))
            raise ConnectionAbortedError
        name = request.path.removeprefix("/sandboxes").strip("/")
        if request.method != "POST" or not request.path.startswith("/sandboxes"):
            writer.write(http.whole(404, "POST to /sandboxes or /sandboxes/ID"))
            raise ConnectionAbortedError
        if name:
            await self._order(name, request.body, writer)
        else:
            await self._hold(request.body, reader, writer)

    async def _hold(self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a sandbox and keep it until the client lets go; who comes when the server is full waits in order."""
        limits, packages = _wishes(body)
        if missing := [name for name in packages if name not in self._packages]:
            fix = f"Start it with --packages {' '.join(dict.fromkeys([*self._packages, *packages]))}"
            writer.write(http.whole(409, f"this server lends no package {', '.join(missing)}. {fix}"))
            raise ConnectionAbortedError
        try:
            async with asyncio.timeout(QUEUE_S):
                await self._places.acquire()
        except TimeoutError:
            writer.write(http.whole(503, f"this server holds {self._most} sandboxes already"))
            raise ConnectionAbortedError from None
        sandbox: OrderedSandbox | None = None
        try:
            if reader.at_eof():  # it has gone meanwhile
                raise ConnectionAbortedError
            made = await (self._lender if packages else self._backend).create(limits)
            assert isinstance(made, OrderedSandbox)
            sandbox = made
            self._sandboxes[sandbox.id] = sandbox
            writer.write(http.head(200) + http.chunk(f"{sandbox.id}\n".encode()))
            await writer.drain()
            await reader.read(1)  # nothing more is said: this is the end, and TCP's keepalive bounds the wait for it
        except SandboxError as error:
            writer.write(http.whole(503, str(error)))
        finally:
            self._places.release()
            if sandbox:
                del self._sandboxes[sandbox.id]
                await self._remove(sandbox)
        raise ConnectionAbortedError

    async def _remove(self, sandbox: OrderedSandbox) -> None:
        """Close it; whoever cancels this connection meanwhile does not cancel that."""
        removal = asyncio.create_task(sandbox.close())
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        await asyncio.shield(removal)

    async def _order(self, name: str, order: bytes, writer: asyncio.StreamWriter) -> None:
        """Carry out an order and send what comes of it."""
        sandbox = self._sandboxes.get(name)
        if sandbox is None:
            writer.write(http.whole(404, f"no sandbox {name}"))
            raise ConnectionAbortedError
        writer.write(http.head(200))

        def said(stream: Stream, data: bytes) -> None:
            writer.write(http.chunk(wire.frame(FRAMES[stream], data)))

        try:
            words, stdin, limits = _parse(order)
            result = await sandbox.order(words, stdin, limits, said)
            last = wire.frame(wire.END, _fields(result))
        except (SandboxError, ValueError) as error:
            last = wire.frame(wire.FAILED, wire.pack(type(error).__name__, str(error)))
        writer.write(http.chunk(last) + http.chunk(b""))


def _wishes(body: bytes) -> tuple[Limits, tuple[str, ...]]:
    """How far a sandbox's programs may go, and the packages they are to have."""
    try:
        fields = json.loads(body)
        packages = checked(fields.pop("packages", ()))
        return Limits(**fields), packages
    except (ValueError, TypeError, AttributeError, PackagesError) as error:
        raise BadRequestError(f"these are no limits: {error}") from error


def _parse(order: bytes) -> tuple[tuple[str | bytes, ...], bytes, Limits]:
    """Verb and arguments, stdin, and how far the run may go; ValueError for what is no order."""
    verb, wall_s, cpu_s, output_bytes, _, stdin, *words = wire.unpack(order)
    wall, cpu = min(float(wall_s), LONGEST_S), min(float(cpu_s), LONGEST_S)
    limits = replace(Limits(), wall_s=wall, cpu_s=cpu, output_bytes=min(int(output_bytes), wire.MOST_BYTES))
    return (verb, *words), stdin, limits


def _fields(result: ExecResult) -> bytes:
    """The result as a warden writes it."""
    hits = ",".join(sorted(result.hits))
    times = (int(result.wall_s * 1e6), int(result.cpu_s * 1e6))
    return wire.pack(result.exit_code, hits, *times, result.peak_memory_bytes, int(result.is_state_lost), 1)


def _watch_over(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice a client whose machine is gone."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m agentrl_sandbox.server", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--most", type=int, default=256, help="sandboxes at once")
    parser.add_argument("--packages", nargs="+", default=[], help="installed packages that programs can import")
    parser.add_argument("--certificate", help="PEM file; with --key the server speaks TLS")
    parser.add_argument("--key", help="PEM file")
    arguments = parser.parse_args()
    if bool(arguments.certificate) != bool(arguments.key):
        parser.error("--certificate and --key go together: give both or neither")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        asyncio.run(_run(arguments))
    except (SandboxError, OSError) as error:
        sys.exit(f"error: {error}")


async def _run(arguments: argparse.Namespace) -> None:
    for line in gc.collect():
        log.info("%s", line)
    # Its own machine's, whatever server the environment names: that may be this one.
    backend = best() if arguments.backend == "auto" else choose(arguments.backend)
    lender = choose(backend.name, arguments.packages) if arguments.packages else None
    tls = None
    if arguments.certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            tls.load_cert_chain(arguments.certificate, arguments.key)
        except OSError as error:
            raise SandboxError(f"cannot use {arguments.certificate} with {arguments.key}: {error}") from error
    elif arguments.host != "127.0.0.1":
        log.warning("no certificate: token and programs cross the network in the clear")
    server = Server(backend, os.environ.get(TOKEN, ""), arguments.most, arguments.packages, lender)
    async with server.listening(arguments.host, arguments.port, tls) as port:
        log.info("sandboxes by %s (%s) on %s:%s", backend.name, backend.describe(), arguments.host, port)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


if __name__ == "__main__":
    main()

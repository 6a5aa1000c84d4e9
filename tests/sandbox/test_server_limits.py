"""What a server gives to strangers, to slow clients and to greedy ones: little, for a short time, not everything."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from agentrl_sandbox import FullError, Limits, Python, UnavailableError, http, server
from agentrl_sandbox.backends.remote_httpx import RemoteBackend
from agentrl_sandbox.budget import Budget
from agentrl_sandbox.connections import STRANGERS
from agentrl_sandbox.inside import wire
from agentrl_sandbox.largest import changed, check, largest_here
from agentrl_sandbox.server import Server

from tests.sandbox.conftest import TIGHT, backend

SECRET = "a-token-of-some-length"
HANG_S = 8.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where a server listens that makes at most three sandboxes."""
    largest = replace(largest_here(), memory_bytes=1 << 30, wall_s=60)
    async with Server(backend("bubblewrap"), SECRET, most=3, largest=largest).listening("127.0.0.1", 0) as bound:
        yield bound


@pytest.fixture
async def remote(port: int) -> AsyncIterator[RemoteBackend]:
    made = RemoteBackend(f"http://127.0.0.1:{port}", SECRET)
    yield made
    await made.close()


def head(length: int, path: str = "/sandboxes", token: str = SECRET) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {length}", "", "")
    return "\r\n".join(lines).encode()


async def call(port: int, data: bytes, host: str = "127.0.0.1") -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(data)
    return reader, writer


async def end(reader: asyncio.StreamReader) -> bytes:
    """What the server says until it closes the connection."""
    async with asyncio.timeout(HANG_S):
        with suppress(ConnectionError):
            return await reader.read()
    return b""


async def first_line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(HANG_S):
        return await reader.readline()


async def assert_serves(remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
    await sandbox.close()


async def test_a_wrong_token_is_refused_before_anything_of_the_body_is_read(port: int) -> None:
    for path in ("/sandboxes", "/sandboxes/some", "/"):
        reader, writer = await call(port, head(50 << 20, path, token="another-token-of-length"))
        assert (await first_line(reader)).startswith(b"HTTP/1.1 401")
        writer.close()


async def test_who_is_refused_in_the_middle_of_a_body_reads_why(port: int) -> None:
    reader, writer = await call(port, head(1 << 19, token="another-token-of-length") + bytes(1 << 19))
    assert (await end(reader)).startswith(b"HTTP/1.1 401")
    writer.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (head(1 << 30), 413),
        (head(server.REQUEST_BYTES + 1), 413),
        (head(50 << 20, "/sandboxes/none"), 404),
        (head(0).replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n"), 400),
        (head(0).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
        (head(0).replace(b"Length: 0", b"Length: 1_0"), 400),
        (b"POST / HTTP/1.1\r\nX: " + bytes(1 << 16) + b"\r\n\r\n", 400),
    ],
)
async def test_a_body_that_nobody_wants_is_not_waited_for(port: int, request_: bytes, status: int) -> None:
    reader, writer = await call(port, request_)
    assert (await end(reader)).startswith(b"HTTP/1.1 %d" % status)
    writer.close()


async def test_deeply_nested_limits_are_a_bad_request(port: int) -> None:
    body = b"[" * server.REQUEST_BYTES
    reader, writer = await call(port, head(len(body)) + body)
    assert (await end(reader)).startswith(b"HTTP/1.1 400")
    writer.close()


async def trickle(writer: asyncio.StreamWriter, data: bytes) -> None:
    """A byte now and then, until the server has had enough."""
    with suppress(ConnectionError):
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("half", [b"", b"POST /sandboxes HTTP/1.1\r\nHost: x\r\n"])
async def test_half_a_head_is_not_kept(port: int, monkeypatch: pytest.MonkeyPatch, half: bytes) -> None:
    assert http.HEAD_S <= 10
    monkeypatch.setattr(http, "HEAD_S", 0.3)
    reader, writer = await call(port, half)
    slow = asyncio.create_task(trickle(writer, b"x" * 1000))
    assert await end(reader) == b""
    slow.cancel()
    writer.close()


async def test_half_a_body_is_not_kept(port: int, remote: RemoteBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert http.allowance_s(wire.MAX_BYTES) < 120
    sandbox = await remote.create(TIGHT)
    monkeypatch.setattr(http, "TRANSFER_S", 0.3)
    for path in ("/sandboxes", f"/sandboxes/{sandbox.id}"):
        reader, writer = await call(port, head(1000, path))
        slow = asyncio.create_task(trickle(writer, b"x" * 900))
        assert await end(reader) == b""
        slow.cancel()
        writer.close()
    assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
    await sandbox.close()


async def test_an_idle_connection_is_not_kept(
    port: int, monkeypatch: pytest.MonkeyPatch, remote: RemoteBackend
) -> None:
    assert http.IDLE_S <= 60
    monkeypatch.setattr(http, "IDLE_S", 0.3)
    sandbox = await remote.create(TIGHT)
    order = wire.pack("python", 1.0, 1.0, 100, 0, b"", "print(1)")
    reader, writer = await call(port, head(len(order), f"/sandboxes/{sandbox.id}") + order)
    assert (await end(reader)).endswith(b"0\r\n\r\n")
    writer.close()
    await sandbox.close()


async def test_an_answer_that_nobody_takes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SHARE", 1 << 50)
    monkeypatch.setattr(server, "MIN_BYTES", wire.MAX_BYTES)
    monkeypatch.setattr(http, "TRANSFER_S", 0.3)
    monkeypatch.setattr(http, "MIN_RATE", 1 << 30)
    order = wire.pack("python", 20.0, 20.0, 40 << 20, 1, b"", "import os\nwhile os.write(1, bytes(1 << 16)): pass")
    async with Server(backend("bubblewrap"), SECRET).listening("127.0.0.1", 0) as bound:
        remote = RemoteBackend(f"http://127.0.0.1:{bound}", SECRET)
        filling, other = await remote.create(TIGHT), await remote.create(TIGHT)
        with socket.create_connection(("127.0.0.1", bound)) as deaf:
            deaf.sendall(head(len(order), f"/sandboxes/{filling.id}") + order)
            await filling.exec(Python("print(1)"))  # the order has been carried out
            # Whoever wants all bytes that may be on their way gets them when that answer has been given up.
            everything = replace(TIGHT, output_bytes=wire.MAX_BYTES)
            assert (await other.exec(Python("print(1)"), limits=everything)).stdout == b"1\n"
            await asyncio.to_thread(read_to_the_end, deaf)
        for sandbox in (filling, other):
            await sandbox.close()
        await remote.close()


def read_to_the_end(sock: socket.socket) -> None:
    sock.settimeout(HANG_S)
    with suppress(ConnectionError):
        read = 0
        while data := sock.recv(1 << 20):
            read += len(data)
        assert read < 40 << 20


async def test_connections_without_a_token_replace_each_other_and_no_client(port: int, remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    patient = await call(port, b"", host="127.0.0.2")
    crowd = [await call(port, b"POST ") for _ in range(STRANGERS + 20)]
    assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
    for reader, _ in crowd[:20]:
        assert await end(reader) == b""
    await assert_serves(remote)
    assert not patient[0].at_eof()
    patient[1].write(head(0, "/", token="another-token-of-length"))
    assert (await first_line(patient[0])).startswith(b"HTTP/1.1 401")
    for _, writer in (*crowd, patient):
        writer.close()
    await sandbox.close()


async def test_strangers_that_do_not_shake_hands_are_not_kept(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with Server(backend("bubblewrap"), SECRET).listening("127.0.0.1", 0, tls) as bound:
        crowd = [await call(bound, b"") for _ in range(STRANGERS + 1)]
        assert await end(crowd[0][0]) == b""
        monkeypatch.setattr(http, "HEAD_S", 0.3)
        reader, writer = await call(bound, b"\x16\x03\x01")
        assert await end(reader) == b""
        remote = RemoteBackend(f"https://localhost:{bound}", SECRET, str(certificate))
        await assert_serves(remote)
        await remote.close()
        for _, each in (*crowd, (reader, writer)):
            each.close()


async def test_connections_with_the_token_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PER_SANDBOX", 1)
    monkeypatch.setattr(server, "SPARE", 0)
    async with Server(backend("bubblewrap"), SECRET, most=2).listening("127.0.0.1", 0) as bound:
        remote = RemoteBackend(f"http://127.0.0.1:{bound}", SECRET)
        held = [await remote.create(TIGHT) for _ in range(2)]
        with pytest.raises(FullError, match="2 connections"):
            await remote.create(TIGHT)
        for sandbox in held:
            await sandbox.close()
        await remote.close()


@pytest.mark.parametrize(
    "wish", [{"memory_bytes": 1 << 50}, {"processes": 1 << 22}, {"disk_bytes": 1 << 50}, {"wall_s": 1e9}, {"cpus": 1e4}]
)
async def test_limits_beyond_the_servers_are_refused_with_what_to_do(
    remote: RemoteBackend, wish: dict[str, float]
) -> None:
    [name] = wish
    with pytest.raises(UnavailableError, match=rf"{name}=.*--largest {name}="):
        await remote.create(Limits(**{**asdict(TIGHT), **wish}))
    await assert_serves(remote)


async def test_an_order_beyond_the_servers_limits_is_refused(remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    with pytest.raises(UnavailableError, match=r"wall_s=100000\.0: this server allows 60"):
        await sandbox.exec(Python("pass"), limits=replace(TIGHT, wall_s=1e5))
    await sandbox.close()


async def test_numbers_of_any_length_are_refused(port: int) -> None:
    for number in ("9" * 4000, "9" * 5000, "1e308", "Infinity", "NaN", "1", "1e7", "true", "-1", "1.5"):
        body = f'{{"memory_bytes": {number}}}'.encode()
        reader, writer = await call(port, head(len(body)) + body)
        answer = await end(reader)
        assert answer.startswith(b"HTTP/1.1 400")
        assert len(answer) < 1000
        writer.close()


def test_the_largest_limits_are_the_owners_or_the_machines() -> None:
    here = largest_here()
    assert check(Limits(), here) == Limits()
    assert json.loads(json.dumps(asdict(here)))["output_bytes"] == wire.MAX_BYTES
    given = changed(here, ["memory_bytes=100000000", "wall_s=7.5"])
    assert (given.memory_bytes, given.wall_s, given.processes) == (100_000_000, 7.5, here.processes)
    for wrong in ("speed=1", "memory_bytes", "memory_bytes=much", "memory_bytes=-1", f"output_bytes={1 << 40}"):
        with pytest.raises(ValueError, match=r".+"):
            changed(here, [wrong])


def test_a_server_with_limits_that_are_none_does_not_start() -> None:
    words = [sys.executable, "-m", "agentrl_sandbox.server", "--largest", "speed=1"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 2
    assert re.search("unknown limit 'speed=1'.*memory_bytes", ran.stderr)


async def test_bytes_in_flight_are_bounded_and_given_in_order() -> None:
    budget, served = Budget(100), list[str]()

    async def want(name: str, count: int) -> None:
        await budget.take(count, HANG_S)
        served.append(name)

    await budget.take(60, HANG_S)
    waiting = [asyncio.create_task(want(name, count)) for name, count in (("large", 80), ("small", 10))]
    await asyncio.sleep(0)  # they have asked
    with pytest.raises(TimeoutError):
        await budget.take(1, 0.05)
    assert served == []
    waiting[0].cancel()
    await waiting[1]
    assert served == ["small"]
    budget.give(60)
    await want("rest", 90)
    assert served == ["small", "rest"]

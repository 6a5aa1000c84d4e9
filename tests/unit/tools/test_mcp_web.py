"""What a server sends over HTTP for one call is bounded, whatever form it has, and a call that asks for more fails."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import pytest
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp import McpServer
from agentrl_tools.mcp import connection as module
from agentrl_tools.mcp.allowance import MAX_VALUES, Allowance, values_of

from agentrl.env import EnvDriver, Task
from tests.unit.tools.guest import say
from tests.unit.tools.test_mcp import PATIENCE_S, guest

pytest.importorskip("mcp", reason="MCP servers need agentrl-core[mcp]")
MIB = 1 << 20
FLOOD = 64 * MIB
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 60_000}}
EVENT = f"event: message\ndata: {json.dumps(NOTE)}\n\n".encode()
ENDLESS: dict[str, tuple[str, bytes, bytes]] = {
    "text": ("application/json", b'{"jsonrpc":"2.0","id":1,"result":{"x":"', b"x" * 65_536),
    "events": ("text/event-stream", b"", EVENT),
    "comments": ("text/event-stream", b"", b": ping\n" * 10),
    "lines": ("text/event-stream", b"", b"\n" * 1000),
    "carriage returns": ("text/event-stream", b"", b"\r" * 1000),
    "event": ("text/event-stream", b"data: ", b"x" * 65_536),
    "values": ("application/json", b'{"jsonrpc":"2.0","id":1,"result":{"x":[', b"[]," * 1000),
    "plain": ("text/plain", b"", b"x" * 65_536),
}
FINE = {"fine": "application/json", "fine events": "text/event-stream"}
TOOLS = [*ENDLESS, *FINE, "gzip", "down", "block"]


class Handler(BaseHTTPRequestHandler):
    """An MCP server by hand; `server.sent` counts what a flood has sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            return self.say(202, b"")
        name = request.get("params", {}).get("name", "")
        if request["method"] != "tools/call":
            return self.say(200, answer(request["id"], request["method"], request.get("params", {})))
        if name in ENDLESS:
            return self.flood(*ENDLESS[name])
        if name == "gzip":
            return self.say(200, gzip.compress(b" " * FLOOD), encoding="gzip")
        if name == "down":
            return self.say(503, b"busy", "text/plain")
        if name == "block":
            self.server.free.wait(PATIENCE_S)  # type: ignore[attr-defined]
            self.server.free.clear()  # type: ignore[attr-defined]
            return self.say(503, b"late", "text/plain")
        result = {"content": [{"type": "text", "text": ',[{"\\' * 250_000}], "isError": False}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        return self.say(200, body if name == "fine" else b"data: " + body + b"\n\n", FINE[name])

    def do_GET(self) -> None:
        self.say(405, b"")

    def flood(self, kind: str, head: bytes, piece: bytes) -> None:
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode() + head)
        self.close_connection = True
        piece *= max(1, 65_536 // len(piece))
        with suppress(ConnectionError):
            for _ in range(FLOOD // len(piece)):
                self.wfile.write(piece)
                self.server.sent += len(piece)  # type: ignore[attr-defined]

    def say(self, status: int, body: bytes, kind: str = "application/json", encoding: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def answer(number: int, method: str, params: dict[str, Any]) -> bytes:
    schema = {"type": "object", "properties": {}}
    results = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        },
        "tools/list": {
            "tools": [
                {"name": name, "description": name, "inputSchema": schema}
                | ({"outputSchema": schema | {"required": ["x"]}} if name in FINE else {})
                for name in TOOLS
            ]
        },
    }
    if method in results:
        return json.dumps({"jsonrpc": "2.0", "id": number, "result": results[method]}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}}).encode()


class OneConnection(Handler):
    """Closes each connection, for a server without threads."""

    protocol_version = "HTTP/1.0"

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads, running.sent = True, 0  # type: ignore[attr-defined]
    with serving(running):
        yield running


@pytest.fixture
def single() -> Iterator[HTTPServer]:
    running = HTTPServer(("127.0.0.1", 0), OneConnection)
    running.free = threading.Event()  # type: ignore[attr-defined]
    with serving(running):
        yield running
        running.free.set()  # type: ignore[attr-defined]


@contextmanager
def serving(running: HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        running.shutdown()
        thread.join(20)
        running.server_close()


def url(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/mcp"


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text", "sent more than 4 MiB"),
        ("events", "sent more than 4 MiB"),
        ("comments", "sent more than 50000 values"),
        ("lines", "sent more than 50000 values"),
        ("carriage returns", "sent more than 50000 values"),
        ("event", "is lost|sent more than 4 MiB"),
        ("values", "sent more than (50000 values|4 MiB)"),
        ("gzip", "sent a compressed response, which is not supported"),
        ("down", "responded with status 503"),
    ],
)
async def test_an_answer_beyond_the_allowance_ends_the_call(
    server: ThreadingHTTPServer, name: str, expected: str
) -> None:
    session = module.Connection(module.Address("test", url=url(server)))
    try:
        await session.open()
        with pytest.raises(ServiceError, match=expected):
            await session.call(name, {})
    finally:
        await session.close()
    assert server.sent < FLOOD // 2  # type: ignore[attr-defined]


@pytest.mark.timeout(PATIENCE_S)
async def test_an_answer_that_is_no_answer_is_not_read(server: ThreadingHTTPServer) -> None:
    session = module.Connection(module.Address("test", url=url(server)))
    await session.open()
    assert session._client is not None
    with pytest.raises(Exception, match="Unexpected content type"):
        await session.call("plain", {})
    await session.close()
    assert server.sent < FLOOD // 2  # type: ignore[attr-defined]


@pytest.mark.timeout(PATIENCE_S)
async def test_a_call_that_always_asks_for_too_much_is_the_models_and_the_episode_goes_on(
    server: ThreadingHTTPServer,
) -> None:
    driver = EnvDriver(guest(McpServer(url(server))))
    await driver.reset(Task("t"))
    assert (await say(driver, "text")).startswith("error: 'text' crashed the server or got no response")
    assert (await say(driver, "down")).startswith("error: 'down' crashed the server or got no response")
    assert (await say(driver, "fine")).startswith(',[{"\\')
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_long_answers_are_read_again_and_again_and_their_text_costs_no_values(
    server: ThreadingHTTPServer,
) -> None:
    """Though they are not what their schema promises."""
    session = module.Connection(module.Address("test", url=url(server)))
    await session.open()
    for name in [*FINE, *FINE]:
        assert (await session.call(name, {})).startswith(',[{"\\')
    await session.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_a_call_that_keeps_a_server_of_one_thread_busy_for_a_while_is_the_models(
    single: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = module.Connection.open

    async def open_(self: module.Connection) -> Any:
        try:
            return await opened(self)
        except ServiceError:
            single.free.set()  # type: ignore[attr-defined]
            raise

    driver = EnvDriver(guest(McpServer(url(single)), tool_timeout_s=0.3))
    await driver.reset(Task("t"))
    monkeypatch.setattr(module.Connection, "open", open_)
    monkeypatch.setattr(module, "START_TIMEOUT_S", 1.0)
    assert (await say(driver, "block")).startswith("error: 'block' crashed the server or got no response")
    assert (await say(driver, "down")).startswith("error: 'down' crashed the server or got no response")
    await driver.close()


def test_an_allowance_is_used_up_and_renewed() -> None:
    allowance = Allowance()
    assert allowance.take(4 * MIB)
    assert not allowance.take(1)
    assert "4 MiB" in allowance.violation
    allowance.renew()
    assert allowance.take(values=MAX_VALUES)
    assert not allowance.take(values=1)
    assert not allowance.take()


def test_values_are_counted_beside_texts() -> None:
    assert values_of(rb'{"a":[1,2],"b":",[{\",[{\\"}') == 4
    assert values_of(b"[" * 7) == 7

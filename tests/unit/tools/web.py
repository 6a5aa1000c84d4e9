"""A small web server for tests: it answers by path."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FLOOD = 64 << 20
"""Bytes."""


class Handler(BaseHTTPRequestHandler):
    """What each path answers; `server.seen` keeps (host header, path)."""

    def do_GET(self) -> None:
        self.server.seen.append((self.headers["Host"], self.path))  # type: ignore[attr-defined]
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        match path:
            case "/hello":
                self.say(200, b"hello")
            case "/big":
                self.say(200, b"x" * 50_000)
            case "/deep":
                self.say(200, b"[" * 100_000)
            case "/gzip":
                self.say(200, b"\x1f\x8b", {"Content-Encoding": "gzip"})
            case "/to":
                self.say(302, b"", {"Location": query["url"][0]})
            case "/flood":
                self.flood({"Location": query["url"][0]})
            case "/loop":
                self.say(302, b"", {"Location": "/loop"})
            case "/picky" if '"' in query["q"][0]:
                self.say(400, b"unbalanced quotes")
            case "/fragile" if query["q"][0] == "down":
                self.say(503, b"")
            case "/fragile" if query["q"][0] == "hang":
                self.server.release.wait(20)  # type: ignore[attr-defined]
            case "/fragile" if query["q"][0] == "junk":
                self.say(200, b"[" * 40_000)
            case "/fragile" if query["q"][0] == "big":
                self.say(200, b" " * 100_000)
            case "/endless":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000)
                self.server.release.wait(20)  # type: ignore[attr-defined]
            case "/drip":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
                self.server.release.wait(20)  # type: ignore[attr-defined]
            case "/headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 200_000)
            case "/reset":
                self.close_connection = True
            case "/junk":
                self.wfile.write(b"\0" * 1000)
            case "/punycode":
                self.say(200, b"a-b", {"Content-Type": "text/plain; charset=punycode"})
            case "/kanji":
                self.say(200, "\u6f22".encode("shift_jis"), {"Content-Type": 'text/plain; charset="Shift_JIS"'})
            case "/down":
                self.say(503, b"")
            case "/hang":
                self.server.release.wait(20)  # type: ignore[attr-defined]
            case "/search" | "/picky" | "/fragile":
                hits = [{"name": f"About {query['q'][0]}", "body": {"text": "Words."}}] * 5
                self.say(200, json.dumps({"data": {"hits": hits}}).encode())
            case _:
                self.say(404, b"no such page")

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.startswith("/post/"):
            return self.say(int(path.removeprefix("/post/")), b"", {"Location": query["url"][0]})
        if self.path != "/retrieve":
            return self.say(200, sent)
        asked = json.loads(sent)
        found = [{"document": {"title": asked["queries"][0], "contents": "Text."}}] * asked["topk"]
        return self.say(200, json.dumps({"result": [found]}).encode())

    def flood(self, headers: dict[str, str]) -> None:
        """A redirect with a body; `server.sent` counts its bytes."""
        self.send_response(302)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(FLOOD))
        self.end_headers()
        with suppress(ConnectionError):
            for _ in range(FLOOD // 65_536):
                self.wfile.write(b"x" * 65_536)
                self.server.sent += 65_536  # type: ignore[attr-defined]
        self.close_connection = True

    def say(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    """A thread for each connection, and room for many that arrive at once."""

    daemon_threads = True
    request_queue_size = 128


@contextmanager
def web() -> Iterator[ThreadingHTTPServer]:
    server = Server(("127.0.0.1", 0), Handler)
    server.seen, server.sent, server.release = [], 0, threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join(10)
        server.server_close()

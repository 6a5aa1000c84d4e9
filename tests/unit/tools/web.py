"""A small web server for tests: it answers by path."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


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
            case "/loop":
                self.say(302, b"", {"Location": "/loop"})
            case "/picky":
                self.say(400, b"unbalanced quotes")
            case "/down":
                self.say(503, b"")
            case "/hang":
                self.server.release.wait(20)  # type: ignore[attr-defined]
            case "/search":
                hits = [{"name": f"About {query['q'][0]}", "body": {"text": "Words."}}] * 5
                self.say(200, json.dumps({"data": {"hits": hits}}).encode())
            case _:
                self.say(404, b"no such page")

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/retrieve":
            return self.say(200, sent)
        asked = json.loads(sent)
        found = [{"document": {"title": asked["queries"][0], "contents": "Text."}}] * asked["topk"]
        return self.say(200, json.dumps({"result": [found]}).encode())

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
    server.seen, server.release = [], threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join(10)
        server.server_close()

"""The loop of an HTTP server: accepts connections, answers their requests in order, and ends in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from agentrl.errors import acatch
from agentrl.serving.connection import JSON, Connection, Head, Reader, RequestError

_LOG = logging.getLogger(__name__)
RETRY_AFTER_S = 1
STOP_S = 5.0
"""How long running requests may take after the server was asked to stop."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    body: bytes
    media_type: str = JSON
    status: HTTPStatus = HTTPStatus.OK


Handler = Callable[[Head, Connection], Awaitable[Response | None]]
"""Answers a request, whose body it reads from the connection. Raises RequestError for an error response.

None says that the connection was a WebSocket, and has ended.
"""


class HttpServer:
    """Answers requests with `handler`; connections beyond `max_connections` get 429 and are closed.

    The body of an error response is {"error": {"type": "...", "message": "..."}}.
    """

    def __init__(self, handler: Handler, max_connections: int) -> None:
        self._handler, self._max_connections = handler, max_connections
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: dict[asyncio.Task[None], Connection] = {}
        self._is_stopping = False

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port. On exit running requests get STOP_S seconds to end.

        A WebSocket ends at once.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._protocol, host, port, backlog=1024, start_serving=False)
        try:  # a cancellation while it starts to serve would leave the socket open
            await server.start_serving()
            yield server.sockets[0].getsockname()[1]
        finally:
            self._is_stopping = True
            server.close()
            try:
                if busy := {task for task, connection in self._busy.items() if not connection.is_upgraded}:
                    await asyncio.wait(busy, timeout=STOP_S)
            finally:
                for task in self._connections:
                    task.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    def _protocol(self) -> asyncio.Protocol:
        reader = Reader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: self._accept(reader, writer))

    def _accept(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connected(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until everything is sent
        try:
            with suppress(OSError, TimeoutError):
                await self._serve(Connection(reader, writer))
        finally:
            writer.transport.abort()

    async def _serve(self, connection: Connection) -> None:
        """Serve the requests of a connection until it ends or one is not served to its end."""
        task, is_open = asyncio.current_task(), True
        assert task is not None
        while is_open and not self._is_stopping:
            try:
                head = await connection.head()
                if head is None:
                    return
                self._busy[task] = connection
                response = await self._answered(head, connection)
                if response is None:
                    return
                is_open = await connection.respond(response.status, response.body, response.media_type)
            except RequestError as error:
                body = msgspec.json.encode({"error": {"type": error.kind, "message": str(error)}})
                retry_after_s = RETRY_AFTER_S if error.status is HTTPStatus.TOO_MANY_REQUESTS else None
                is_open = await connection.respond(error.status, body, retry_after_s=retry_after_s)
                is_open = is_open and not self._is_crowded
            finally:
                self._busy.pop(task, None)

    async def _answered(self, head: Head, connection: Connection) -> Response | None:
        if self._is_crowded:
            raise overloaded(f"this server already has {self._max_connections} connections")
        if "origin" in head.headers:  # any page could otherwise use the servers of the machine that shows it
            raise RequestError(HTTPStatus.FORBIDDEN, "origin", "pages of browsers are not served")
        outcome = await acatch(self._handler(head, connection))
        if isinstance(outcome.error, RequestError | OSError) or (outcome.error is not None and connection.is_upgraded):
            raise outcome.error
        if outcome.error is not None:
            _LOG.error("a request failed: %s %s", head.method, head.path, exc_info=outcome.error)
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the server failed: see its log")
        response: Response | None = outcome.value
        return response

    @property
    def _is_crowded(self) -> bool:
        return len(self._connections) > self._max_connections


def overloaded(reason: str) -> RequestError:
    """Return the error of a request that should be sent again later."""
    return RequestError(HTTPStatus.TOO_MANY_REQUESTS, "overloaded", f"{reason}: send the request again later")

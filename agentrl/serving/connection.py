"""HTTP/1.1 connections of a server: h11 parses, and every wait has a deadline.

Not a framework, because their servers wait forever for the head of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast

import h11

if TYPE_CHECKING:
    from agentrl.serving.websocket import WebSocket

T = TypeVar("T")
HEAD_BYTES, READ_BYTES = 1 << 14, 1 << 16
HEAD_S, BODY_S, SEND_S, DISCARD_S = 10.0, 30.0, 30.0, 1.0
LOOK_S = 0.1
"""How often a server looks whether the client still waits for its answer."""
GRACE_S = 1.0
"""Time to read what has arrived by a deadline: a busy event loop reads late, and runs timers first."""
JSON = "application/json"
IDLE_S = 60.0
"""How long a connection stays open between requests; clients close it earlier."""


Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class RequestError(Exception):
    """A request that gets an error response; `kind` is its type for programs, the message is for people."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class Reader(asyncio.StreamReader):
    """What a client sends; `is_ended` is True as soon as it has sent its last byte, read or not."""

    is_ended = False

    def feed_eof(self) -> None:
        """Note the end."""
        self.is_ended = True
        super().feed_eof()


class Connection:
    """One connection of a client, which may send several requests."""

    def __init__(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._within_s = HEAD_S
        self._is_head = False
        self.is_upgraded = False

    async def head(self) -> Head | None:
        """Read the head of the next request; None if the client is gone or sends none in time."""
        try:
            event = await self._arrived(self._event, self._within_s)
        except (TimeoutError, OSError):
            return None
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        if not headers.keys() & {"content-length", "transfer-encoding"}:
            self._state.next_event()  # the end of a request without a body
        return Head(event.method.decode(), event.target.decode("latin-1"), headers)

    async def body(self, max_bytes: int) -> bytes:
        """Read the body of the request. Raises RequestError if it is too large or too slow."""
        body = bytearray()
        if self._state.their_state is not h11.SEND_BODY:  # a request without a body
            return b""

        async def read() -> Event:
            if self._state.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            while isinstance(event := await self._event(), h11.Data):
                body.extend(event.data)
                if len(body) > max_bytes:
                    reason = f"the body has more than {max_bytes} bytes: send less at once"
                    raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", reason)
            return event

        try:
            event = await self._arrived(read, BODY_S)
        except TimeoutError:
            reason = f"the body did not arrive within {BODY_S:g} s"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, "slow_request", reason) from None
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionAbortedError
        return bytes(body)

    @property
    def is_closed(self) -> bool:
        """True if the client has closed its side or broken the connection: it sends no more, and it may be gone.

        Also if it has sent more ahead than is read before its answer, because its end could not be seen.
        """
        is_behind = not cast("asyncio.Transport", self._writer.transport).is_reading()
        return is_behind or self._reader.is_ended or self._reader.exception() is not None

    async def while_open(self, answer: Coroutine[Any, Any, T]) -> T:
        """Await an answer. Cancels it, and raises ConnectionAbortedError, if the client closes its side before."""
        task = asyncio.create_task(answer)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if self.is_closed:
                    raise ConnectionAbortedError
            return task.result()
        finally:
            task.cancel()

    async def respond(
        self, status: HTTPStatus, body: bytes, media_type: str = JSON, retry_after_s: int | None = None
    ) -> bool:
        """Send a response; returns whether the connection can take another request."""
        headers = [("Content-Type", media_type), ("Content-Length", str(len(body)))]
        headers += [("Retry-After", str(retry_after_s))] if retry_after_s is not None else []
        headers += [] if self._state.their_state is h11.DONE else [("Connection", "close")]
        async with asyncio.timeout(SEND_S):
            content = () if self._is_head else (h11.Data(body),)
            await self._send(h11.Response(status_code=status, headers=headers), *content, h11.EndOfMessage())
        if self._state.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            await self._discard()
            return False
        self._state.start_next_cycle()
        self._is_head = False
        self._within_s = IDLE_S
        return True

    @asynccontextmanager
    async def websocket(self, head: Head, max_bytes: int) -> AsyncIterator[WebSocket]:
        """Speak WebSocket while the context is open; nothing else can be sent afterwards.

        The body of the context is cancelled, and the context ends, when the client closes or breaks the connection.
        Raises RequestError if the head does not ask for a WebSocket, or if a page of a browser asks.
        """
        from agentrl.serving.websocket import HandshakeError, WebSocket, handshake  # most servers speak HTTP only

        try:
            accepted = handshake(head.method, head.path, head.headers)
        except HandshakeError as error:
            raise RequestError(error.status, "no_websocket", str(error)) from None
        self.is_upgraded = True
        early, _ = self._state.trailing_data
        self._writer.write(accepted)
        socket = WebSocket(self._reader, self._writer, max_bytes, early)
        async with socket.open():
            yield socket

    async def _discard(self) -> None:
        """Drop input for a moment, so that a client in the middle of its request sees the response."""
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while await self._reader.read(READ_BYTES):
                    pass

    async def _arrived(self, read: Callable[[], Awaitable[Event]], within_s: float) -> Event:
        """Return what is read. Raises TimeoutError if the client has not sent it within so many seconds."""
        try:
            async with asyncio.timeout(within_s):
                return await read()
        except TimeoutError:
            async with asyncio.timeout(GRACE_S):
                return await read()

    async def _event(self) -> Event:
        try:
            while (event := self._state.next_event()) is h11.NEED_DATA:
                self._state.receive_data(await self._reader.read(READ_BYTES))
            return event
        except h11.RemoteProtocolError as error:
            reason = f"this is not a valid HTTP request: {error}"
            raise RequestError(HTTPStatus.BAD_REQUEST, "malformed", reason) from None

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
        await self._writer.drain()

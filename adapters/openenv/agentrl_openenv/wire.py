"""OpenEnv's wire: one WebSocket is one session; `reset` and `step` are answered by observations or errors.

Answers have no ids: the next message is the answer. So a message that no call asked for fails the session, whether it
waits before a call or comes before the server's goodbye; the answers since could be those of earlier calls.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, WebSocketException

from agentrl.errors import AgentRLError, Fault

MAX_BYTES = 64 << 20
FULL = "CAPACITY_REACHED"
INVALID = ("VALIDATION_ERROR", "INVALID_JSON")
"""Codes of errors that the action caused."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
WAITING: deque[asyncio.Future[None]] = deque()
"""What wait for a session of a full server; the end of one of this process wakes the first."""


class ServerError(AgentRLError):
    """A server of OpenEnv that is down, hangs or fails: the episode ends as an infrastructure failure."""

    fault: Fault = "infra"


class UnreachableError(ServerError):
    """A server that takes no connection, or closes it at once: it has ended, or is about to."""


class FullError(ServerError):
    """A server that serves as many sessions as it can."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Answer to an action; without a `reward`, nothing was scored.

    `problem` says why the server rejected the action; then nothing happened.
    """

    content: Mapping[str, Any] = field(default_factory=dict)
    reward: float | None = None
    is_done: bool = False
    problem: str = ""


class Session:
    """One open session of a server."""

    def __init__(self, socket: ClientConnection, url: str, timeout_s: float) -> None:
        self._socket, self._url, self._timeout_s = socket, url, timeout_s
        self._has_begun = False

    @classmethod
    async def begin(
        cls, urls: Sequence[str], task: Mapping[str, Any], *, timeout_s: float, wait_s: float
    ) -> tuple[Session, Observation]:
        """Open a session on one of the servers and reset it to a task.

        Waits up to `wait_s` while none is free, but some are full. Raises ServerError.
        """
        loop, pause_s = asyncio.get_running_loop(), FIRST_WAIT_S
        ends_at = loop.time() + wait_s
        while True:
            full: FullError | None = None
            for url in random.sample(urls, len(urls)):
                try:
                    return await cls._begin(f"ws{url.removeprefix('http')}/ws", task, timeout_s)
                except FullError as error:
                    full = error
                except UnreachableError as error:
                    gone = error
            if full is None:
                raise gone
            if loop.time() + pause_s > ends_at:
                raise ServerError(f"{full}: no session was free for {wait_s:g} s") from full
            pause_s = FIRST_WAIT_S if await _has_ended(pause_s) else min(2 * pause_s, LONGEST_WAIT_S)

    @classmethod
    async def _begin(cls, url: str, task: Mapping[str, Any], timeout_s: float) -> tuple[Session, Observation]:
        try:
            # No pings: every call has a deadline, and a task that pings would outlive a cancelled close.
            socket = await connect(
                url, max_size=MAX_BYTES, open_timeout=timeout_s, close_timeout=1.0, ping_interval=None,
                proxy=True if asks_proxy(url) else None,
            )  # fmt: skip
        except (TimeoutError, WebSocketException) as error:
            kind = UnreachableError if isinstance(error, InvalidMessage) else ServerError
            raise kind(f"{url}: no connection: {error!r}") from error
        except (
            OSError
        ) as error:  # one that is no ConnectionError is a fault of this process, such as too many open files
            kind = UnreachableError if isinstance(error, ConnectionError) else ServerError
            raise kind(f"{url}: no connection: {error}") from error
        session = cls(socket, url, timeout_s)
        try:
            first = await session.call("reset", task)
            if first.problem:
                raise ServerError(f"{url} rejects the reset to {json.dumps(dict(task))}: {first.problem}")
        except BaseException:
            await session.close()
            raise
        session._has_begun = True
        return session, first

    async def call(self, kind: str, data: Mapping[str, Any]) -> Observation:
        """Send a message and return its answer. Raises FullError and ServerError.

        A call without its answer ends the session: the answer could come later, and be taken for that of the next call.
        """
        what = f"{self._url}: {kind}"
        try:
            await self._check_silence(what)
            return observed(parsed(await self._exchange(kind, data), what), what)
        except BaseException:
            self._socket.transport.abort()
            raise

    async def _exchange(self, kind: str, data: Mapping[str, Any]) -> str | bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                with suppress(ConnectionClosed):  # a full server says so and closes: its message is still to be read
                    await self._socket.send(json.dumps({"type": kind, "data": data}))
                return await self._socket.recv()
        except TimeoutError as error:
            raise ServerError(f"{self._url}: no answer to {kind} within {self._timeout_s:g} s") from error
        except (OSError, WebSocketException) as error:
            raise ServerError(f"{self._url}: the session broke during {kind}: {error}") from error

    async def _check_silence(self, what: str) -> None:
        """Raise ServerError for a message that has come unasked, such as FullError for that of a full server."""
        try:
            async with asyncio.timeout(0):  # a message that was received is returned at once
                text = await self._socket.recv(decode=False)
        except (OSError, WebSocketException):
            return
        observed(parsed(text, what), what)
        raise ServerError(f"{what}: the server sent {text[:200]!r} unasked: its answers cannot be told apart")

    async def end(self) -> None:
        """End the session. Raises ServerError if the server sent more messages than it was asked for."""
        await self.close()
        await self._check_silence(f"{self._url}: close")

    async def close(self) -> None:
        """End the session; at once if it is cancelled."""
        try:
            await self._socket.close()
        finally:
            self._socket.transport.abort()
            has_ended, self._has_begun = self._has_begun, False  # it may be closed again
            if has_ended and WAITING:
                first = WAITING.popleft()
                first.get_loop().call_soon_threadsafe(first.cancel)


async def _has_ended(most_s: float) -> bool:
    """Wait until a session of this process has ended, at most so many seconds; return whether one has."""
    waiting = asyncio.get_running_loop().create_future()
    WAITING.append(waiting)
    try:
        return bool((await asyncio.wait({waiting}, timeout=most_s))[0])
    finally:
        with suppress(ValueError):
            WAITING.remove(waiting)


def asks_proxy(url: str) -> bool:
    """Return whether the proxies that the environment variables name apply: not to this machine itself."""
    return httpx.URL(url).host not in ("localhost", "127.0.0.1", "::1")


def parsed(text: str | bytes, what: str) -> Any:
    """Parse the JSON of a message. Raises ServerError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"{what} was answered by {text[:200]!r}, which is not JSON: {error}") from error


def observed(reply: Any, what: str) -> Observation:
    """Read an answer. Raises FullError and ServerError, for errors and for what is no answer."""
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, dict):
        raise ServerError(f"{what} was answered by {str(reply)[:200]!r}, which is not a message of OpenEnv")
    if reply.get("type") == "error":
        code, text = data.get("code"), str(data.get("message") or data)
        if code in INVALID:
            return Observation(problem=str(data.get("errors") or text))
        raise (FullError if code == FULL else ServerError)(f"{what} failed: {code}: {text}")
    content, reward, is_done = data.get("observation"), data.get("reward"), data.get("done", False)
    is_scored = isinstance(is_done, bool) and (reward is None or is_finite(reward))
    if reply.get("type") != "observation" or not isinstance(content, dict) or not is_scored:
        raise ServerError(f"{what} was answered by {str(reply)[:200]!r}, which is no observation")
    return Observation(content, None if reward is None else float(reward), is_done)


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number that a float can hold."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max

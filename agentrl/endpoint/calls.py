"""The calls of one episode by their requests: a client that repeats a request joins its call, or gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

from agentrl.endpoint.model import Responder
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import Connection, Head


@dataclass(slots=True)
class Call:
    """One call, who waits for its answer, and how often a client has asked for it again."""

    answer: asyncio.Task[Answer]
    retries: int = 0
    is_delivered: bool = False
    """Whether a client has received the answer."""
    _clients: list[Connection] = field(default_factory=list)

    @contextmanager
    def awaited_by(self, client: Connection) -> Iterator[None]:
        """Count a client among those who wait for the answer."""
        self._clients.append(client)
        try:
            yield
        finally:
            self._clients.remove(client)

    def is_awaited(self) -> bool:
        """Return whether a client waits for the answer."""
        return not all(client.is_closed for client in self._clients)

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer, so that a retry is another call."""
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)


class Calls:
    """The calls of one episode. Equal requests are calls of their own: an agent may ask the same thing twice."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._equal: dict[bytes, list[Call]] = {}

    def call(self, ask: Ask, head: Head, body: bytes) -> Call:
        """Return the call of a request: an earlier one if it is a retry.

        Of several equal calls, a retry is of one that no client waits for, whose answer none has received, with the
        fewest retries.
        """
        equal = self._equal.setdefault(_digest(head, body), [])
        equal[:] = (call for call in equal if not call.has_failed)
        if _is_retry(head) and equal:
            call = min(equal, key=lambda one: (one.is_awaited(), one.is_delivered, one.retries))
            call.retries += 1
        else:
            call = Call(asyncio.create_task(self._responder.answer(ask)))
            equal.append(call)
        return call

    async def close(self) -> None:
        """End the calls in flight."""
        answers = [call.answer for equal in self._equal.values() for call in equal]
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)


def _is_retry(head: Head) -> bool:
    """True if the client marks the request as a repetition of an earlier one."""
    count = head.headers.get("x-stainless-retry-count", "0")
    return "idempotency-key" in head.headers or (count.isdecimal() and count.strip("0") != "")


def _digest(head: Head, body: bytes) -> bytes:
    """Return what identifies a request among those of its episode."""
    key = head.headers.get("idempotency-key", "")
    return blake2b(b"\0".join([key.encode(), head.path.encode(), body]), digest_size=16).digest()

"""The calls of one episode by their requests: a client that repeats a request joins its call, or gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import ref

from agentrl.endpoint.model import Responder
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import Connection, Head, RequestError

REPEATED = {408, 409, 429}
"""Besides those from 500 on, the statuses after which clients repeat a request."""


@dataclass(slots=True, eq=False)
class Call:
    """One call, who waits for its answer, who has received it, and how often a client has asked for it again."""

    answer: asyncio.Task[Answer]
    retries: int = 0
    _clients: list[Connection] = field(default_factory=list)
    _receiver: ref[Connection] | None = None  # a connection that is kept takes about 5 KiB

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

    def received_by(self, client: Connection) -> None:
        """Note that the answer is about to be written to a client."""
        self._receiver = ref(client)

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer, so that a retry is another call."""
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)

    @property
    def is_refused(self) -> bool:
        """Whether it has failed in a way after which no client repeats a request."""
        if not self.has_failed or self.answer.cancelled():
            return self.has_failed
        error = self.answer.exception()
        return isinstance(error, RequestError) and error.status < 500 and error.status not in REPEATED

    def distance(self) -> int:
        """Return how far a retry of an equal request is from this call: nearest is one whose client has gone."""
        if self.has_failed:
            return 1
        if self._receiver is None:
            return 2 if self.is_awaited() else 0
        receiver = self._receiver()
        return 3 if receiver is None or receiver.is_closed else 4


class Calls:
    """The calls of one episode. Equal requests are calls of their own: an agent may ask the same thing twice."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._equal: dict[bytes, list[Call]] = {}

    def call(self, ask: Ask, head: Head, body: bytes) -> Call:
        """Return the call of a request: an earlier one if it is a retry.

        Clients that send no key do not say of which of several equal calls. It is taken for one whose client has gone
        without the answer; else one that failed, which is made again; else one in flight; and last one whose answer was
        received, rather by a connection that has closed since. The last of them is the nearest.
        """
        equal = self._equal.setdefault(_digest(head, body), [])
        equal[:] = (call for call in equal if not call.is_refused)
        if _is_retry(head) and equal:
            call = min(reversed(equal), key=lambda one: (one.distance(), one.retries))
            if not call.has_failed:
                call.retries += 1
                return call
            equal.remove(call)
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

"""Peer: one side of a connection on which both sides call each other.

{"id": 7, "call": "step", "with": {…}}    a call
{"id": 7, "result": …}                    its result
{"id": 7, "error": {…}}                   or what it raised
{"id": 7, "cancelled": true}              or that it was cancelled
{"cancel": 7}                             the caller waits no more
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from agentrl.errors import EnvError, WorkerLostError, acatch
from agentrl.hosting.channel import MAX_BYTES, Channel
from agentrl.hosting.wire import ProtocolError, as_error, error_of, read
from agentrl.types.plain import as_json

CANCEL_S = 5.0
"""How long a cancelled call waits for the other side to end it; longer than an author's code gets."""
Serve = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Serves a call: (method, arguments) to its result."""


class Peer:
    """Calls the other side, and serves its calls with `serve`, while `run` runs."""

    def __init__(self, channel: Channel, serve: Serve) -> None:
        self._channel, self._serve = channel, serve
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._serving: dict[int, asyncio.Task[bytes]] = {}
        self.lost = ""
        """How the connection ended; "" while it lasts."""

    async def run(self, ended: Callable[[], Awaitable[str]]) -> None:
        """Handle messages until the connection ends, or breaks the protocol; `ended` returns how it ended.

        From then on all calls fail with WorkerLostError, and those of the other side are cancelled.
        """
        broken = ""
        try:
            while (message := await self._channel.receive()) is not None:
                self._handle(read(lambda: json.loads(message)))
        except ProtocolError as error:
            broken = str(error)
        finally:
            how = await ended()
            self._lose(f"{broken}; {how}" if broken else how)
            for task in (serving := list(self._serving.values())):
                task.cancel()
            if serving:
                await asyncio.wait(serving)

    def _lose(self, reason: str) -> None:
        self.lost = reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerLostError(reason))

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the other side. A cancellation reaches it, and waits until it has ended there.

        Raises WorkerLostError if the connection ends, EnvError for more than MAX_BYTES.
        """
        if self.lost:
            raise WorkerLostError(self.lost)
        number = next(self._numbers)
        message = _encoded({"id": number, "call": method, "with": arguments}, f"the arguments of {method} have")
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send(message)
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            self._channel.send(as_json({"cancel": number}))
            await asyncio.wait({future}, timeout=CANCEL_S)
            raise
        finally:
            del self._waiting[number]
            if future.done() and not future.cancelled():
                future.exception()  # known, even if the caller has gone
        return future.result()

    def _handle(self, message: Any) -> None:
        match message:
            case {"id": int(number), "call": str(method), "with": dict(arguments)}:
                task = self._serving[number] = asyncio.create_task(self._served(number, method, arguments))
                task.add_done_callback(partial(self._ended, number))
            case {"cancel": int(number)}:
                if number in self._serving:
                    self._serving[number].cancel()
            case {"id": int(number)}:
                if (future := self._waiting.get(number)) and not future.done():
                    self._settle(future, message)
            case _:
                raise ProtocolError(f"the other side sent something unexpected: {str(message)[:80]}")

    @staticmethod
    def _settle(future: asyncio.Future[Any], outcome: dict[str, Any]) -> None:
        if "error" in outcome:
            future.set_exception(read(lambda: error_of(outcome["error"])))
        elif "cancelled" in outcome:
            future.cancel()
        else:
            future.set_result(outcome.get("result"))

    async def _served(self, number: int, method: str, arguments: dict[str, Any]) -> bytes:
        """Return the answer to a call."""
        outcome = await acatch(self._serve(method, arguments))
        kind, value = ("error", as_error(outcome.error)) if outcome.error else ("result", outcome.value)
        return _encoded({"id": number, kind: value}, f"the {kind} of {method} has")

    def _ended(self, number: int, task: asyncio.Task[bytes]) -> None:
        """Send the answer to a call, or why there is none: its caller waits without a deadline."""
        del self._serving[number]
        if task.cancelled():  # perhaps before it began
            answer = as_json({"id": number, "cancelled": True})
        elif isinstance(error := task.exception(), Exception):
            answer = as_json({"id": number, "error": as_error(error)})
        else:
            answer = task.result()
        self._channel.send(answer)


def _encoded(message: dict[str, Any], what: str) -> bytes:
    """Return a message as it is sent. Raises EnvError if it is larger than the other side takes."""
    encoded = as_json(message)
    if len(encoded) > MAX_BYTES:
        raise EnvError(
            f"{what} {len(encoded):,} bytes as JSON: at most {MAX_BYTES:,} pass between an environment and its worker"
        )
    return encoded

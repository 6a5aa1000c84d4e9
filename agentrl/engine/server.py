"""The engine's side of the wire: an engine that also answers clients in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agentrl.engine.protocol import Engine
from agentrl.engine.wire import LEASE_S, Answer, Request
from agentrl.errors import EngineError
from agentrl.types import Prompt, Sampling


class EngineServer:
    """A Transport to its clients; every other attribute is that of the engine it wraps.

    A client that does not call for `LEASE_S` seconds counts as dead: its requests are aborted.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mailboxes: dict[str, _Mailbox] = {}
        self._leases: dict[str, asyncio.TimerHandle] = {}
        self._operations = {"generate": self._generate, "score": self._score}

    async def submit(self, client: str, requests: Sequence[Request]) -> None:
        """Begin these requests."""
        mailbox = self._mailbox(client)
        for number, operation, arguments, deadline_s in requests:
            mailbox.begin(number, self._operations[operation](arguments, deadline_s))

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
        """Return the answers that are ready, as soon as there are any; none after `timeout_s`."""
        mailbox = self._mailbox(client)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await mailbox.has_news.wait()
        return mailbox.take()

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        """Abort these requests: they get no answer."""
        mailbox = self._mailbox(client)
        for number in numbers:
            mailbox.abort(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _generate(self, arguments: tuple[Any, ...], deadline_s: float) -> tuple[Any, ...]:
        ids, *sampling = arguments
        completion = await self._engine.generate(Prompt(ids), Sampling(*sampling), deadline_s)
        spans = tuple((*span.version, span.start, span.end) for span in completion.versions)
        return completion.ids, completion.logprobs, spans, completion.finish_reason

    async def _score(self, arguments: tuple[Any, ...], deadline_s: float) -> tuple[float, ...]:
        (ids,) = arguments
        return await self._engine.score(ids, deadline_s)

    def _mailbox(self, client: str) -> _Mailbox:
        """Return the client's mailbox and renew its lease."""
        if (lease := self._leases.get(client)) is not None:
            lease.cancel()
        self._leases[client] = asyncio.get_running_loop().call_later(LEASE_S, self._expire, client)
        return self._mailboxes.setdefault(client, _Mailbox())

    def _expire(self, client: str) -> None:
        del self._leases[client]
        self._mailboxes.pop(client).close()


class _Mailbox:
    """The requests of one client in flight, and the answers it has not collected."""

    def __init__(self) -> None:
        self.has_news = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._answers: list[Answer] = []

    def begin(self, number: int, call: Coroutine[Any, Any, Any]) -> None:
        """Run a request; `take` returns its answer."""
        self._tasks[number] = task = asyncio.create_task(call)
        task.add_done_callback(partial(self._ended, number))

    def abort(self, number: int) -> None:
        """Cancel a request if it still runs; it gets no answer."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def take(self) -> list[Answer]:
        """Return the answers since the last call."""
        answers, self._answers = self._answers, []
        self.has_news.clear()
        return answers

    def close(self) -> None:
        """Abort everything and end a waiting `collect`."""
        for number in list(self._tasks):
            self.abort(number)
        self.has_news.set()

    def _ended(self, number: int, task: asyncio.Task[Any]) -> None:
        error = EngineError("the engine dropped the request") if task.cancelled() else task.exception()
        if self._tasks.pop(number, None) is None:
            return
        answer = (number, "", task.result()) if error is None else (number, type(error).__name__, str(error))
        self._answers.append(answer)
        self.has_news.set()

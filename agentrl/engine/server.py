"""Requests of many episodes to the engines, few calls on the wire: the side of the engine's process (see client.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agentrl.engine.base import Engine
from agentrl.engine.client import COLLECT_S, GRACE_S, Outcome, Request
from agentrl.errors import EngineError
from agentrl.types import Capabilities, Completion, Manifest, Prompt, Sampling, Version

LEASE_S = COLLECT_S + GRACE_S


class EngineServer:
    """An Engine that also answers clients in batches: for them a Transport, for all others the engine it wraps.

    A client that was not heard of for `LEASE_S` is dead: its requests are aborted.
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

    async def collect(self, client: str, timeout_s: float) -> list[Outcome]:
        """The outcomes that are ready, as soon as there are any; none after `timeout_s`."""
        mailbox = self._mailbox(client)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await mailbox.is_worth_a_look.wait()
        return mailbox.take()

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        """Abort these requests: they have no outcome."""
        mailbox = self._mailbox(client)
        for number in numbers:
            mailbox.abort(number)

    async def disconnect(self, client: str) -> None:
        """Abort every request of a client that is gone. Idempotent."""
        if (lease := self._leases.pop(client, None)) is not None:
            lease.cancel()
        if (mailbox := self._mailboxes.pop(client, None)) is not None:
            mailbox.close()

    async def start(self, deadline_s: float) -> Capabilities:
        """As the engine's own, like all that follow."""
        return await self._engine.start(deadline_s)

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """One request outside all batches."""
        return await self._engine.generate(prompt, sampling, deadline_s)

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """One request outside all batches."""
        return await self._engine.score(ids, deadline_s)

    async def pause(self, deadline_s: float) -> None:
        """Stop sampling."""
        await self._engine.pause(deadline_s)

    async def resume(self, deadline_s: float) -> None:
        """Go on sampling."""
        await self._engine.resume(deadline_s)

    async def sleep(self, deadline_s: float) -> None:
        """Give the accelerator's memory back."""
        await self._engine.sleep(deadline_s)

    async def wake(self, deadline_s: float) -> None:
        """Take the memory again."""
        await self._engine.wake(deadline_s)

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """Meet the sender of weights."""
        await self._engine.init_transfer(info, deadline_s)

    async def start_update(self, deadline_s: float) -> None:
        """Begin an update."""
        await self._engine.start_update(deadline_s)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Receive one bucket."""
        await self._engine.load(bucket, deadline_s)

    async def finish_update(self, manifest: Manifest, deadline_s: float) -> None:
        """End the update and compare."""
        await self._engine.finish_update(manifest, deadline_s)

    async def version(self) -> Version | None:
        """The version served."""
        return await self._engine.version()

    async def close(self) -> None:
        """Abort every request and end the engine. Idempotent."""
        for client in list(self._mailboxes):
            await self.disconnect(client)
        await self._engine.close()

    async def _generate(self, arguments: tuple[Any, ...], deadline_s: float) -> tuple[Any, ...]:
        ids, media, *sampling = arguments
        completion = await self._engine.generate(Prompt(ids, media), Sampling(*sampling), deadline_s)
        spans = tuple((*span.version, span.start, span.end) for span in completion.versions)
        return completion.ids, completion.logprobs, spans, completion.finish_reason

    async def _score(self, arguments: tuple[Any, ...], deadline_s: float) -> tuple[float, ...]:
        (ids,) = arguments
        return await self._engine.score(ids, deadline_s)

    def _mailbox(self, client: str) -> _Mailbox:
        """The client's mailbox, its lease renewed."""
        if (lease := self._leases.get(client)) is not None:
            lease.cancel()
        self._leases[client] = asyncio.get_running_loop().call_later(LEASE_S, self._expire, client)
        return self._mailboxes.setdefault(client, _Mailbox())

    def _expire(self, client: str) -> None:
        del self._leases[client]
        self._mailboxes.pop(client).close()


class _Mailbox:
    """The requests of one client in flight, and the outcomes it has not collected."""

    def __init__(self) -> None:
        self.is_worth_a_look = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._outcomes: list[Outcome] = []

    def begin(self, number: int, call: Coroutine[Any, Any, Any]) -> None:
        """Run a request; its outcome will lie here."""
        self._tasks[number] = task = asyncio.create_task(call)
        task.add_done_callback(partial(self._ended, number))

    def abort(self, number: int) -> None:
        """Cancel a request if it still runs; it has no outcome."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def take(self) -> list[Outcome]:
        """Every outcome so far, once."""
        outcomes, self._outcomes = self._outcomes, []
        self.is_worth_a_look.clear()
        return outcomes

    def close(self) -> None:
        """Abort everything and send a waiting `collect` home."""
        for number in list(self._tasks):
            self.abort(number)
        self.is_worth_a_look.set()

    def _ended(self, number: int, task: asyncio.Task[Any]) -> None:
        error = EngineError("the engine dropped the request") if task.cancelled() else task.exception()
        if self._tasks.pop(number, None) is None:
            return
        outcome = (number, "", task.result()) if error is None else (number, type(error).__name__, str(error))
        self._outcomes.append(outcome)
        self.is_worth_a_look.set()

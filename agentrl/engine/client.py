"""Requests of many episodes to the engines, few calls on the wire.

    episodes ─ generate ─▶ EngineClient ══ submit, cancel ══▶ EngineServer ─ generate ─▶ Engine
               (one process of workers)  ◀═════ collect ═════   (the engine's process)

A call between processes costs as much as a turn may: so the requests of one event-loop tick travel together, and their
outcomes come back through one outstanding `collect`. Plain tuples cross the wire, errors as (kind, message).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol

from agentrl.engine.protocol import Engine
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError
from agentrl.types import Completion, Prompt, Sampling, Version, VersionSpan

Request = tuple[int, str, tuple[Any, ...], float]  # number, "generate" or "score", arguments, deadline in seconds
Answer = tuple[int, str, Any]  # number, "" or the kind of the error, result or message

COLLECT_S = 20.0  # how long one `collect` waits for an outcome
GRACE_S = 40.0  # how much later a sign of life may come before the other side counts as dead
LEASE_S = COLLECT_S + GRACE_S
FAREWELL_S = 5.0
MAX_HOMES = 1 << 16
_ERRORS = {kind.__name__: kind for kind in (EngineError, EngineDiedError, EngineRefusedError, DeadlineError)}


class Transport(Protocol):
    """An EngineServer, here or in another process. A call raises EngineDiedError when that is gone."""

    async def submit(self, client: str, requests: Sequence[Request]) -> None:
        """Begin these requests."""

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
        """The outcomes that are ready, as soon as there are any; none after `timeout_s`."""

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        """Abort these requests: they have no outcome."""


class EngineClient:
    """What a rollout worker holds of all engines; `generate` and `score` are those of an Engine.

    A request goes to the engine with the fewest in flight, or to the one its `key` (a conversation) went to before,
    whose cache holds the prefix. When an engine dies its requests are sent again elsewhere, `resends` times at most;
    when none is left they wait for `restarted`. All within the request's deadline. `client` is a name that no process
    before or beside this one had.
    """

    def __init__(self, engines: Sequence[Transport], client: str, resends: int = 3) -> None:
        self._client = client
        self._resends = resends
        self._links = [_Link(engine, client) for engine in engines]
        self._numbers = count()
        self._homes: dict[Hashable, _Link] = {}
        self._restart = asyncio.Event()

    async def generate(
        self, prompt: Prompt, sampling: Sampling, deadline_s: float, key: Hashable | None = None
    ) -> Completion:
        """Sample one completion on one of the engines."""
        s = sampling
        arguments = (prompt.ids, prompt.media, s.max_tokens, s.temperature, s.seed, s.stop_token_ids, s.stop)
        ids, logprobs, spans, finish_reason = await self._ask("generate", arguments, deadline_s, key)
        versions = tuple(VersionSpan(Version(incarnation, n), start, end) for incarnation, n, start, end in spans)
        return Completion(ids, logprobs, versions, finish_reason)

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Logprobs at temperature 1 of ids[1:], each given all before it."""
        scores: tuple[float, ...] = await self._ask("score", (ids,), deadline_s, None)
        return scores

    def restarted(self, place: int, engine: Transport) -> None:
        """`engine` stands in for engine number `place`, whose requests are lost; call it once it serves weights."""
        self._links[place].lose("it was restarted")
        self._links[place] = _Link(engine, self._client)
        self._restart.set()

    def lose(self, place: int, reason: str) -> None:
        """Send nothing more to engine number `place`: its callers go elsewhere at once."""
        self._links[place].lose(reason)

    async def close(self) -> None:
        """Give up what is in flight; its callers get EngineDiedError. Idempotent."""
        self._resends = 0
        for link in self._links:
            await link.close()

    async def _ask(self, operation: str, arguments: tuple[Any, ...], deadline_s: float, key: Hashable | None) -> Any:
        ends_at = asyncio.get_running_loop().time() + deadline_s
        scope = asyncio.timeout_at(ends_at)
        try:
            async with scope:
                return await self._ask_until_answered(operation, arguments, ends_at, key)
        except TimeoutError as error:
            if not scope.expired():
                raise
            alive = sum(not link.loss for link in self._links)
            state = f"{alive} of {len(self._links)} engines alive"
            raise DeadlineError(f"{operation}: no answer after {deadline_s} s, {state}") from error

    async def _ask_until_answered(
        self, operation: str, arguments: tuple[Any, ...], ends_at: float, key: Hashable | None
    ) -> Any:
        now = asyncio.get_running_loop().time
        resends = 0
        while True:
            link = await self._chosen(key)
            try:
                return await link.ask((next(self._numbers), operation, arguments, ends_at - now()))
            except EngineDiedError:
                resends += 1
                if resends > self._resends:
                    raise

    async def _chosen(self, key: Hashable | None) -> _Link:
        home = self._homes.get(key)
        if home is not None and not home.loss:
            return home
        while not (alive := [link for link in self._links if not link.loss]):
            self._restart.clear()
            await self._restart.wait()
        link = min(alive, key=lambda link: len(link.waiting))
        if key is not None:
            self._homes[key] = link
            if len(self._homes) > MAX_HOMES:
                del self._homes[next(iter(self._homes))]
        return link


class _Link:
    """One engine as a client sees it, until it is lost."""

    def __init__(self, engine: Transport, client: str) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.loss = ""
        self._engine = engine
        self._client = client
        self._outbox: list[Request] = []
        self._withdrawn: list[int] = []
        self._is_flush_due = False
        self._calls: set[asyncio.Task[None]] = set()
        self._collecting: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Any:
        """The result of a request; cancelling withdraws it."""
        number = request[0]
        self.waiting[number] = future = asyncio.get_running_loop().create_future()
        self._outbox.append(request)
        self._flush_soon()
        try:
            return await future
        finally:
            if self.waiting.pop(number, None) is not None:
                self._withdrawn.append(number)
                self._flush_soon()

    def lose(self, reason: str) -> None:
        """The engine is gone: every caller learns it now, and nothing more is sent."""
        self.loss = self.loss or reason
        self._fail_all(reason)

    async def close(self) -> None:
        """Lose the engine on purpose, having told it so."""
        if self.loss:
            return
        numbers = list(self.waiting)
        self.lose("the client was closed")
        if numbers:
            farewell = self._call(self._engine.cancel(self._client, numbers))
            await asyncio.wait([farewell], timeout=FAREWELL_S)
            farewell.cancel()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what this tick brought, in one call of each kind."""
        self._is_flush_due = False
        requests, self._outbox = self._outbox, []
        withdrawn, self._withdrawn = self._withdrawn, []
        if self.loss:
            return
        if requests:
            self._call(self._engine.submit(self._client, requests))
        if withdrawn:
            self._call(self._engine.cancel(self._client, withdrawn))
        if self.waiting and (self._collecting is None or self._collecting.done()):
            self._collecting = self._call(self._collect())

    def _call(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if isinstance(error, EngineDiedError):
            self.lose(str(error))
        elif error is not None:
            self._fail_all(f"{type(error).__name__}: {error}")

    def _fail_all(self, reason: str) -> None:
        """Nothing in flight will be answered; an engine that is only late or confused may be asked again."""
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(EngineDiedError(f"the engine does not answer ({reason}): its requests are lost"))
        self.waiting.clear()
        self._collecting = None
        for call in self._calls:
            call.cancel()

    async def _collect(self) -> None:
        while self.waiting:
            async with asyncio.timeout(COLLECT_S + GRACE_S):
                outcomes = await self._engine.collect(self._client, COLLECT_S)
            for outcome in outcomes:
                self._settle(*outcome)

    def _settle(self, number: int, kind: str, result: Any) -> None:
        if kind == EngineDiedError.__name__:
            self.lose(result)
        future = self.waiting.pop(number, None)
        if future is None or future.done():
            return
        if not kind:
            future.set_result(result)
        elif kind in _ERRORS:
            future.set_exception(_ERRORS[kind](result))
        else:
            future.set_exception(EngineError(f"the engine raised {kind}: {result}"))


class EngineServer:
    """An engine that also answers clients in batches: for them a Transport, for all else the engine it wraps.

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

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

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
        self._outcomes: list[Answer] = []

    def begin(self, number: int, call: Coroutine[Any, Any, Any]) -> None:
        """Run a request; its outcome will lie here."""
        self._tasks[number] = task = asyncio.create_task(call)
        task.add_done_callback(partial(self._ended, number))

    def abort(self, number: int) -> None:
        """Cancel a request if it still runs; it has no outcome."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def take(self) -> list[Answer]:
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

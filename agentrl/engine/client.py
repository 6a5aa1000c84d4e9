"""The rollout workers' side of the wire: the requests of many episodes in few calls to the engines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Sequence
from itertools import count
from typing import Any

from agentrl.engine.wire import COLLECT_S, GRACE_S, Request, Transport
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError
from agentrl.types import Completion, Prompt, Sampling, Version, VersionSpan

FAREWELL_S = 5.0
MAX_HOMES = 1 << 16
_ERRORS = {kind.__name__: kind for kind in (EngineError, EngineDiedError, EngineRefusedError, DeadlineError)}


class EngineClient:
    """All engines of a run as one, in a rollout worker; `generate` and `score` are those of an Engine.

    A request goes to the engine with the fewest in flight, or to the one its `key` (a conversation) went to before,
    whose cache holds the prefix. When an engine dies, its requests are sent to another one, at most `resends` times;
    when no engine is left, they wait for `replace`. The request's deadline covers all of this. `client` is a name
    that no other process has or had.
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
        arguments = (prompt.ids, s.max_tokens, s.temperature, s.seed, s.stop_token_ids, s.stop)
        ids, logprobs, spans, finish_reason = await self._ask("generate", arguments, deadline_s, key)
        versions = tuple(VersionSpan(Version(incarnation, n), start, end) for incarnation, n, start, end in spans)
        return Completion(ids, logprobs, versions, finish_reason)

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:], each given all ids before it."""
        scores: tuple[float, ...] = await self._ask("score", (ids,), deadline_s, None)
        return scores

    def replace(self, engine_id: int, engine: Transport) -> None:
        """Replace an engine, whose requests are lost, by `engine`, which serves weights already."""
        self._links[engine_id].lose("it was restarted")
        self._links[engine_id] = _Link(engine, self._client)
        self._restart.set()

    def lose(self, engine_id: int, reason: str) -> None:
        """Send nothing more to an engine; its requests go to another one at once."""
        self._links[engine_id].lose(reason)

    async def close(self) -> None:
        """Abort what is in flight; its callers get EngineDiedError. Idempotent."""
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
    """The client's connection to one engine, until the engine is lost."""

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
        """Return the result of a request; cancelling withdraws it."""
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
        """Give the engine up: fail every caller at once and send nothing more."""
        self.loss = self.loss or reason
        self._fail_all(reason)

    async def close(self) -> None:
        """Disconnect from the engine after cancelling pending requests."""
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
        """Send what this tick has gathered, in one call of each kind."""
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
        """Fail everything in flight; an engine that is only late or confused may get new requests."""
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
                answers = await self._engine.collect(self._client, COLLECT_S)
            for answer in answers:
                self._settle(*answer)

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

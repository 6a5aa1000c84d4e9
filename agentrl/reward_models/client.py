"""The client of a reward model: conversations in, signals out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.config.tokens import checked_token
from agentrl.env.rewards import counted, invalid
from agentrl.errors import ConfigError
from agentrl.roles.poster import AskError, Poster, RefusedError, checked_urls, with_path
from agentrl.types import Message, Signal

WAIT_S = 0.005
MAX_CONNECTIONS = 8
UNKNOWN = "http://127.0.0.1"
"""Address of a model that the run serves, until it has started."""
OPENRLHF_PATH, OWN_PATH = "/get_reward", "/v1/score"
MAX_LOGS = 10_000
"""Maximum length of the evidence of a signal, in characters of JSON."""


@dataclass(frozen=True, slots=True)
class Query:
    """A rendered conversation; a server in the form of OpenRLHF also gets its prompt and a label: the task's answer."""

    text: str
    prompt: str = ""
    label: str = ""


Given = str | Query | Sequence[Message]


@dataclass
class _Batch:
    """Conversations that are sent together."""

    inputs: list[Given] = field(default_factory=list)
    is_full: asyncio.Event = field(default_factory=asyncio.Event)
    signals: asyncio.Task[list[Signal]] | None = None


class RewardModel:
    """A reward model behind `url`: the address of `agentrl serve-rm`, or one of OpenRLHF that ends in `/get_reward`.

    Several addresses with commas between them are asked in turn; a request that one of them refuses goes to the next.
    Calls that come together are sent together, at most `max_batch` in a request and `max_connections` requests at once.
    `timeout_s` is the deadline of a request once it has been sent; it waits for a connection as long as others are
    answered. A request that is refused for what it contains is sent again in halves, within its deadline, so that only
    a conversation that cannot be scored has no score. A failure gives an invalid signal with the reason, never a value.

    In an environment, create one per process with `@shared`; its rewards are then `async def` methods that return
    `await self.rm.score(ctx.messages)`.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "reward_model",
        weight: float = 1.0,
        token: str = "",
        timeout_s: float = 60.0,
        max_batch: int = 32,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        urls = checked_urls(url, f"reward model {name}")
        forms = {one.endswith(OPENRLHF_PATH) for one in urls}
        if len(forms) > 1:
            raise ConfigError(f"reward model {name}: some addresses end in {OPENRLHF_PATH}: write all in one form")
        [self.is_openrlhf] = forms
        token = checked_token(token, f"reward model {name}: its token")
        self._poster = Poster(
            urls if self.is_openrlhf else with_path(urls, OWN_PATH), token, timeout_s, max_connections
        )
        self._blank = Signal(name, None, weight, verifier=url)
        self._max_batch = max_batch
        self._open: _Batch | None = None
        self._tasks: set[asyncio.Task[list[Signal]]] = set()

    async def score(self, given: Given) -> Signal:
        """Return the score of a conversation, which may be a rendered text."""
        batch = self._open = self._open or self._new_batch()
        assert batch.signals is not None
        index = len(batch.inputs)
        batch.inputs.append(given if isinstance(given, str | Query) else list(given))
        if len(batch.inputs) == self._max_batch:
            self._open = None
            batch.is_full.set()
        return (await asyncio.shield(batch.signals))[index]

    async def aclose(self) -> None:
        """Cancel what is under way and close all connections. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await self._poster.aclose()

    def _new_batch(self) -> _Batch:
        batch = _Batch()
        batch.signals = task = asyncio.create_task(self._ask(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    async def _ask(self, batch: _Batch) -> list[Signal]:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await batch.is_full.wait()
        if self._open is batch:
            self._open = None
        try:
            async with self._poster.connection() as ends_at:
                return await self._signals(batch.inputs, ends_at)
        except AskError as error:
            return self._invalid(batch.inputs, error)

    async def _signals(self, inputs: Sequence[Given], ends_at: float) -> list[Signal]:
        """Return the signals of conversations; `ends_at` is the deadline, a time of the event loop."""
        ask, middle = self._get_reward if self.is_openrlhf else self._score, len(inputs) // 2
        try:
            return await ask(inputs, ends_at)
        except RefusedError as error:
            if not middle:
                return self._invalid(inputs, error)
        except AskError as error:
            return self._invalid(inputs, error)
        first = await self._signals(inputs[:middle], ends_at)
        return [*first, *await self._signals(inputs[middle:], ends_at)]

    def _invalid(self, inputs: Sequence[Given], error: AskError) -> list[Signal]:
        return [invalid(self._blank, str(error))] * len(inputs)

    async def _score(self, inputs: Sequence[Given], ends_at: float) -> list[Signal]:
        texts = [given.text if isinstance(given, Query) else given for given in inputs]
        answer = await self._poster.post({"inputs": texts}, ends_at)
        scores = self._values(answer, "scores", len(inputs))
        reasons = self._reasons(answer, len(inputs))
        return [
            invalid(self._blank, reasons[index]) if index in reasons else self._signal(value)
            for index, value in enumerate(scores)
        ]

    async def _get_reward(self, inputs: Sequence[Given], ends_at: float) -> list[Signal]:
        queries = [Query(given) if isinstance(given, str) else given for given in inputs]
        texts = [query for query in queries if isinstance(query, Query)]
        if len(texts) < len(queries):
            raise RefusedError(f"{self._poster.url} takes rendered text, not messages: pass a str or a Query")
        answer = await self._poster.post(
            {
                "query": [query.text for query in texts],
                "prompts": [query.prompt for query in texts],
                "labels": [query.label for query in texts],
            },
            ends_at,
        )
        signals = [self._signal(value) for value in self._values(answer, "rewards", len(inputs))]
        return [replace(signal, evidence=_logs(answer, index)) for index, signal in enumerate(signals)]

    def _signal(self, value: Any) -> Signal:
        if isinstance(value, bool) or not isinstance(value, int | float):
            shown = self._poster.shown(repr(value))
            return invalid(self._blank, f"{self._poster.url} answered with the score {shown}, which is no number")
        return counted(self._blank, value)

    def _reasons(self, answer: Mapping[str, Any], count: int) -> dict[int, str]:
        """Return why single inputs have no score, by index."""
        errors, reasons = answer.get("errors") or [], dict[int, str]()
        if not isinstance(errors, list):
            raise AskError(
                f"{self._poster.url} answered with errors that are no list: {self._poster.shown(str(errors))}"
            )
        for error in errors:
            index = error.get("index") if isinstance(error, Mapping) else None
            if not isinstance(index, int) or not 0 <= index < count:
                raise AskError(
                    f"{self._poster.url} answered with an error of no input: {self._poster.shown(str(error))}"
                )
            reasons[index] = self._poster.shown(f"{error.get('type')}: {error.get('message')}")
        return reasons

    def _values(self, answer: Any, key: str, count: int) -> list[Any]:
        values = answer.get(key) if isinstance(answer, Mapping) else None
        if not isinstance(values, list):
            raise AskError(f"{self._poster.url} answered without a list {key!r}")
        if len(values) != count:
            raise AskError(f"{self._poster.url} answered with {len(values)} {key} for {count} texts")
        return values


class ServedRewardModel(RewardModel):
    """A reward model that the run serves itself; `move` gives its address.

    `replacement_s` is the longest time from the moment when its server dies or hangs until another one serves.
    """

    def __init__(self, name: str, weight: float, token: str, timeout_s: float, replacement_s: float) -> None:
        super().__init__(UNKNOWN, name=name, weight=weight)
        self._poster = Poster((UNKNOWN + OWN_PATH,), token, timeout_s, MAX_CONNECTIONS, replacement_s)

    def move(self, url: str) -> None:
        """Ask the server at `url` from now on, also with the requests under way at the one that it replaces."""
        self._poster.move(url + OWN_PATH)


def _logs(answer: Mapping[str, Any], index: int) -> dict[str, Any] | None:
    """Return the score and the extra_logs of one input, cut where they are long; None if the server sends none."""
    extra = answer.get("extra_logs")
    columns = {"scores": answer.get("scores"), **(extra if isinstance(extra, Mapping) else {})}
    found = {name: values[index] for name, values in columns.items() if isinstance(values, list) and values[index:]}
    written = json.dumps(found)
    return {"cut": written[:MAX_LOGS]} if len(written) > MAX_LOGS else found or None

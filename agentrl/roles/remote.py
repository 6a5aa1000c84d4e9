"""A role played by a model behind an endpoint of the OpenAI API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.endpoint import Ask
from agentrl.endpoint.chat import message_of, written
from agentrl.errors import RoleError
from agentrl.roles.poster import AskError, Poster, checked_urls, with_path
from agentrl.roles.replies import Replies, key_of
from agentrl.roles.role import RoleReply
from agentrl.roles.spec import RoleSpec
from agentrl.serving import RequestError
from agentrl.types import Message, text_of

CHAT_PATH = "/chat/completions"
CUT, FILTERED = "length", "content_filter"
"""Why a reply ended that is not whole."""
CHARACTERS_PER_TOKEN = 4
"""For servers that do not say how many tokens they used."""
MAX_COUNT = 1 << 53
"""No server has used so many tokens; JSON numbers are exact below."""


@dataclass(slots=True)
class _Asking:
    """A request under way, and how many wait for its reply."""

    task: asyncio.Task[RoleReply]
    waiting: int = 0


class RemotePlayer:
    """Asks the endpoint of one role. Equal requests are made once; `share` processes share its limits."""

    def __init__(self, spec: RoleSpec, replies: Replies, share: int = 1) -> None:
        keys = self._keys = spec.keys
        name = self._name = spec.name
        self._replies, self._share = replies, share
        self._slots = asyncio.Semaphore(max(1, keys.concurrency // share))
        urls = with_path(checked_urls(keys.url or "", f"role {name}"), CHAT_PATH)
        self._endpoint = " ".join((keys.model, *sorted(set(urls))))
        self._poster = Poster(urls, spec.api_key, keys.timeout_s, keys.concurrency)
        self._asking: dict[bytes, _Asking] = {}

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        """Return the reply to a conversation, from the cache if the same was asked before; see `Player`."""
        body = self._body(ask, seed)
        try:
            key = key_of(self._endpoint, body)
        except (ValueError, OverflowError) as error:
            raise RoleError(f"the role {self._name}: what it is asked cannot be written as JSON: {error}") from error
        if found := self._replies.get(key):
            return replace(found, is_cached=True)
        is_first = key not in self._asking
        if is_first:
            self._asking[key] = _Asking(asyncio.create_task(self._ask(key, body)))
        asking = self._asking[key]
        asking.waiting += 1
        try:
            reply = await asyncio.shield(asking.task)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                asking.task.cancel()
                self._asking.pop(key, None)
        return replace(reply, is_cached=not is_first)

    async def check(self) -> None:
        """Ask something short. Raises RoleError if the endpoint, the model or the key does not work."""
        hello = Ask((Message(role="user", content="Reply with OK."),))
        async with self._connection() as ends_at:
            await self._post({**self._body(hello, 0), "max_tokens": 16}, ends_at)

    async def aclose(self) -> None:
        """Cancel what is under way and close all connections. Idempotent."""
        for asking in self._asking.values():
            asking.task.cancel()
        await self._poster.aclose()

    def _body(self, ask: Ask, seed: int) -> dict[str, Any]:
        keys = self._keys
        body: dict[str, Any] = {
            "model": keys.model,
            "messages": [_written(message) for message in ask.messages],
            "temperature": keys.temperature,
            "max_tokens": min(keys.max_tokens, ask.max_tokens or keys.max_tokens),
        }
        if keys.temperature > 0:
            body["seed"] = seed
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in ask.tools]
        return body

    async def _ask(self, key: bytes, body: dict[str, Any]) -> RoleReply:
        """Ask within the budget, and keep the reply: before the next request has the connection and sees the budget."""
        async with self._connection() as ends_at:
            self._check_budget()
            reply = await self._post(body, ends_at)
            try:
                self._replies.put(key, reply, self._endpoint)
            except RoleError as error:
                raise RoleError(f"the role {self._name}: {error}") from error
            return reply

    def _check_budget(self) -> None:
        budget = self._keys.token_budget // self._share
        if self._keys.token_budget and self._replies.used(self._endpoint) >= budget:
            raise RoleError(
                f"the role {self._name} has used the tokens that the run may spend on {self._keys.model} at "
                f"{self._poster.url}: raise roles.{self._name}.token_budget ({self._keys.token_budget}) and resume"
            )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[float]:
        """Wait for a free connection; the time of the event loop at which a reply is due."""
        timeout_s = self._keys.timeout_s
        ends_at = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                await self._slots.acquire()
        except TimeoutError:
            raise RoleError(
                f"the role {self._name} had no connection free within {timeout_s:g} s: raise "
                f"roles.{self._name}.concurrency or roles.{self._name}.timeout_s"
            ) from None
        try:
            yield ends_at
        finally:
            self._slots.release()

    async def _post(self, body: dict[str, Any], ends_at: float) -> RoleReply:
        left_s = ends_at - asyncio.get_running_loop().time()
        try:
            return _read(await self._poster.post(body, round(left_s, 1)), body)
        except (AskError, RequestError) as error:
            raise RoleError(f"the role {self._name}: {error}") from error


class Players:
    """The endpoints that one process asks: each is made once, for all environments that share it."""

    def __init__(self, path: Path | None = None, share: int = 1) -> None:
        """`path` is the file of the replies; `share` is the number of processes that share the limits of a role."""
        self._path, self._share = path, share
        self._replies: Replies | None = None
        self._players: dict[RoleSpec, RemotePlayer] = {}

    def of(self, spec: RoleSpec) -> RemotePlayer:
        """Return the player of a role that has a url."""
        if self._replies is None:
            self._replies = Replies(self._path)
        if spec not in self._players:
            self._players[spec] = RemotePlayer(spec, self._replies, self._share)
        return self._players[spec]

    async def aclose(self) -> None:
        """Close all connections and the file. Idempotent."""
        await asyncio.gather(*(player.aclose() for player in self._players.values()))
        self._players.clear()
        if self._replies is not None:
            self._replies.close()
            self._replies = None


def _written(message: Message) -> dict[str, Any]:
    if message["role"] == "assistant":
        return {key: value for key, value in written(message).items() if key != "reasoning_content"}
    body = {"role": message["role"], "content": text_of(message)}
    return body | ({"tool_call_id": message["tool_call_id"]} if "tool_call_id" in message else {})


def _read(answer: Any, body: dict[str, Any]) -> RoleReply:
    """Return the reply in a chat completion. Raises AskError if there is none."""
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = message_of({**choice["message"], "role": "assistant"}, "choices[0].message")
        ended = choice.get("finish_reason")
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    except (LookupError, TypeError, AttributeError) as error:
        raise AskError(f"it answered without choices[0].message: {error!r}") from None
    if ended == FILTERED:
        raise AskError("it withheld its answer or a part of it (finish_reason content_filter)")
    lengths = sum(len(one["content"] or "") for one in body["messages"]), len(text_of(message))
    guessed = [length // CHARACTERS_PER_TOKEN for length in lengths]
    prompt, reply = (_count(count, guess) for count, guess in zip(counts, guessed, strict=True))
    return RoleReply(message, prompt, reply, is_cut=ended == CUT)


def _count(given: Any, guess: int) -> int:
    return given if isinstance(given, int) and 0 <= given < MAX_COUNT else guess

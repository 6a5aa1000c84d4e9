"""A role played by a model behind an endpoint of the OpenAI API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentrl.endpoint import Ask
from agentrl.endpoint.chat import message_of, written
from agentrl.endpoint.content import TEXTS
from agentrl.errors import RoleError
from agentrl.roles.poster import MAX_SHOWN, AskError, Poster, checked_urls, with_path
from agentrl.roles.replies import Replies, ReplyFiles, key_of
from agentrl.roles.role import Player, RoleReply
from agentrl.roles.spec import RoleSpec
from agentrl.serving import RequestError
from agentrl.types import Message, as_unicode, text_of

CHAT_PATH = "/chat/completions"
CUT, FILTERED = "length", "content_filter"
"""Why a reply ended that is not whole."""
MESSAGE = "choices[0].message"
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
"""Types of content parts with what a model thought before its reply."""
CHARACTERS_PER_TOKEN = 4
"""For servers that do not say how many tokens they used."""
MAX_COUNT = 1 << 53
"""No server has used so many tokens; JSON numbers are exact below."""


@dataclass(slots=True)
class _Asking:
    """A request under way, and how many wait for its reply."""

    task: asyncio.Task[RoleReply]
    waiting: int = 0


class RemotePlayer(Player):
    """Asks the endpoint of one role. Equal requests are made once; the workers of a run share its limits."""

    def __init__(self, spec: RoleSpec, replies: Replies) -> None:
        keys = self._keys = spec.keys
        name = self._name = spec.name
        self._replies = replies
        self._slots = asyncio.Semaphore(max(1, keys.concurrency // replies.files.workers))
        urls = with_path(checked_urls(keys.url or "", f"role {name}", "api_key_env"), CHAT_PATH)
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
        with self._named():
            found = self._replies.get(key)
        if found:
            return replace(found, is_cached=True)
        is_first = key not in self._asking
        if is_first:
            task = asyncio.create_task(self._ask(body))
            task.add_done_callback(partial(self._ended, key))
            self._asking[key] = _Asking(task)
        asking = self._asking[key]
        asking.waiting += 1
        try:
            reply = await asyncio.shield(asking.task)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                self._ended(key, asking.task)
                asking.task.cancel()
        return replace(reply, is_cached=not is_first, key=key.hex())

    async def keep(self, reply: RoleReply) -> None:
        """Keep a reply for equal requests; see `Player`. Raises RoleError if the disk is full."""
        with self._named():
            self._replies.put(bytes.fromhex(reply.key), replace(reply, is_cached=False, key=""))

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

    def _ended(self, key: bytes, task: asyncio.Task[RoleReply]) -> None:
        """Let no further call wait for a request."""
        if key in self._asking and self._asking[key].task is task:
            del self._asking[key]

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

    async def _ask(self, body: dict[str, Any]) -> RoleReply:
        """Ask within the budget, and count the tokens before the next request has the connection."""
        async with self._connection() as ends_at:
            self._check_budget()
            reply = await self._post(body, ends_at)
            with self._named():
                self._replies.count(self._endpoint, reply.prompt_tokens + reply.completion_tokens)
            return reply

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RoleError as error:
            raise RoleError(f"the role {self._name}: {error}") from error

    def _check_budget(self) -> None:
        budget = self._keys.token_budget
        with self._named():
            is_used = budget > 0 and self._replies.used(self._endpoint) >= budget
        if is_used:
            raise RoleError(
                f"the role {self._name} has used the tokens that the run may spend on {self._keys.model} at "
                f"{self._poster.url}: raise roles.{self._name}.token_budget ({budget}) and resume"
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
        """Return the reply to a request. The tokens of an answer that is no reply are counted here."""
        try:
            answer = await self._poster.post(body, ends_at)
            try:
                return _read(answer, body)
            except (AskError, RequestError):
                with self._named():
                    self._replies.count(self._endpoint, sum(_tokens(answer, body)))
                raise
        except (AskError, RequestError) as error:
            raise RoleError(f"the role {self._name}: {self._poster.hidden(str(error))}") from None


class Players:
    """The endpoints that one process asks: each is made once, for all environments that share it."""

    def __init__(self, files: ReplyFiles | None = None, worker: int = 0) -> None:
        """`files` are those of the run, of which this process is a worker; without them replies are in memory."""
        self._files, self._worker = files, worker
        self._replies: Replies | None = None
        self._players: dict[RoleSpec, RemotePlayer] = {}

    def of(self, spec: RoleSpec) -> RemotePlayer:
        """Return the player of a role that has a url."""
        if self._replies is None:
            self._replies = Replies(self._files, self._worker)
        if spec not in self._players:
            self._players[spec] = RemotePlayer(spec, self._replies)
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
        choice = answer["choices"][0]
        given, ended = choice["message"], choice.get("finish_reason")
        content = given.get("content")
    except (LookupError, TypeError, AttributeError):
        shown = as_unicode(json.dumps(answer, ensure_ascii=False))[:MAX_SHOWN]
        raise AskError(f"it answered without choices[0].message: {shown}") from None
    if ended == FILTERED:
        raise AskError("it withheld its answer or a part of it (finish_reason content_filter)")
    message = message_of({**given, "role": "assistant", "content": _without_thoughts(content)}, MESSAGE)
    prompt, reply = _tokens(answer, body, text_of(message))
    return RoleReply(message, prompt, reply, is_cut=ended == CUT)


def _without_thoughts(content: Any) -> Any:
    """Return the content of a message without its thoughts. Raises AskError for a part that is no text either."""
    if content is None or isinstance(content, str):
        return content
    given = content if isinstance(content, list) else [content]
    parts = [part if isinstance(part, dict) else {"type": type(part).__name__} for part in given]
    parts = [part for part in parts if part.get("type") not in THOUGHTS]
    for part in parts:
        if part.get("type") not in tuple(TEXTS):
            raise AskError(f"its {MESSAGE} has a part of type {part.get('type')!r}, which is no text")
    return parts


def _tokens(answer: Any, body: dict[str, Any], text: str = "") -> tuple[int, int]:
    """Return the tokens of a prompt and of its answer with `text`; none if a model was not asked."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = usage if isinstance(usage, dict) else {}
    if not counts and not (isinstance(answer, dict) and answer.get("choices")):
        return 0, 0
    lengths = sum(len(one["content"] or "") for one in body["messages"]), len(text)
    prompt, reply = (length // CHARACTERS_PER_TOKEN for length in lengths)
    return _count(counts.get("prompt_tokens"), prompt), _count(counts.get("completion_tokens"), reply)


def _count(given: Any, guess: int) -> int:
    return given if isinstance(given, int) and 0 <= given < MAX_COUNT else guess

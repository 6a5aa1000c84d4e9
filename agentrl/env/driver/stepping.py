"""An AgentEnv turn by turn: its agent's calls wait until somebody answers them, as in `play` and in Gymnasium."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

from agentrl.endpoint import (
    TOKENIZER,
    Answer,
    Ask,
    ByteTokenizer,
    Endpoint,
    Key,
    Model,
    Responder,
    Tokens,
    key_after,
    keys_of,
    shown,
)
from agentrl.roles import Role, relayed
from agentrl.types import (
    Completion,
    FunctionCall,
    Message,
    TokenIds,
    ToolCall,
    Version,
    VersionSpan,
    as_arguments,
    text_of,
)

MAX_CONTEXT = 1 << 20
"""What the endpoint reports; there is no model whose context could be exceeded."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A call of the agent that waits for its answer."""

    ask: Ask
    new: tuple[Message, ...]
    """Its messages that no earlier call had."""
    key: Key
    """The key of the conversation before the answer."""
    answer: asyncio.Future[Answer]


class Stepping(Responder):
    """Runs an agent until its next call. Parallel calls are answered one after the other."""

    def __init__(self, play: Callable[[Model], Coroutine[Any, Any, None]], roles: Mapping[str, Role]) -> None:
        self._play, self._roles, self._tokenizer = play, roles, TOKENIZER.get() or ByteTokenizer()
        self._resources = AsyncExitStack()
        self._calls: asyncio.Queue[Pending] = asyncio.Queue()
        self._answers: list[asyncio.Future[Answer]] = []
        self._known: set[Key] = set()
        self._spoken: list[TokenIds] = []  # the longest last, which most prompts continue
        self._ids = count()
        self._agent: asyncio.Task[Any] | None = None

    async def first(self) -> Pending | None:
        """Start the agent; return its first call, None if it ends without one."""
        endpoint = Endpoint(MAX_CONTEXT)
        ends = (self._tokenizer.eos_token_id,)
        tokens = Tokens(self._tokenizer, self.generate, MAX_CONTEXT, MAX_CONTEXT, ends, temperature=1.0)
        self._resources.push_async_callback(endpoint.close)
        model = await self._resources.enter_async_context(endpoint.open(self, tokens))
        self._agent = asyncio.ensure_future(self._play(model))
        self._agent.add_done_callback(lambda agent: agent.cancelled() or agent.exception())  # known, even if unread
        return await self._next()

    async def reply(self, call: Pending, answer: Answer) -> Pending | None:
        """Answer a call; return the agent's next one, None when it has ended. Raises what the agent raised."""
        self._known.add(key_after(call.key, answer.message))
        call.answer.set_result(answer)
        return await self._next()

    async def close(self) -> None:
        """End the agent. Idempotent."""
        for answer in self._answers:
            answer.cancel()
        try:
            if self._agent is not None:
                self._agent.cancel()
                await asyncio.wait({self._agent})
        finally:
            await self._resources.aclose()

    async def answer(self, ask: Ask) -> Answer:
        """Hand a call to `first` or `reply`; see `agentrl.endpoint.Responder`."""
        if ask.role is not None:
            return await relayed(self._roles, ask)
        if ask.ids:
            sampled = await self.generate(ask.ids, ask.max_tokens, ask.stop)
            return Answer(Message(role="assistant", content=""), ids=sampled.ids, logprobs=sampled.logprobs)
        keys = list(keys_of(ask))
        known = max((n for n, key in enumerate(keys) if key in self._known), default=0)
        return await self._given(Pending(ask, ask.messages[known:], keys[-1], self._promise()))

    async def count(self, ask: Ask) -> int:
        """Return the bytes of a request's prompt, which are its tokens where there is no model."""
        return len(ByteTokenizer().apply_chat_template(ask.messages, add_generation_prompt=True))

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:  # noqa: ARG002
        """Do nothing: a turn counts when it is given."""
        return True

    async def generate(self, ids: Sequence[int], max_tokens: int | None = None, stop: Sequence[str] = ()) -> Completion:
        """Hand a prompt to `first` or `reply` as text, and return the ids of the answer; see `Tokens.generate`."""
        prompt, code = tuple(ids), self._tokenizer
        known = next((len(one) for one in reversed(self._spoken) if prompt[: len(one)] == one), 0)
        message = Message(role="user", content=code.decode(prompt[known:]))
        ask = Ask((message,), max_tokens=max_tokens, stop=tuple(stop), ids=prompt)
        *_, key = keys_of(ask)
        answer = await self._given(Pending(ask, (message,), key, self._promise()))
        sampled = (*code.encode(text_of(answer.message), add_special_tokens=False), code.eos_token_id)
        insort(self._spoken, prompt + sampled, key=len)
        return Completion(sampled, (0.0,) * len(sampled), (VersionSpan(Version(0, 0), 0, len(sampled)),), "stop")

    def _promise(self) -> asyncio.Future[Answer]:
        """Return an answer to come, which the end of the episode cancels."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return answer

    async def _given(self, call: Pending) -> Answer:
        await self._calls.put(call)
        return await call.answer

    def answer_of(self, turn: Message, ask: Ask) -> Answer:
        """Return a turn as the agent and the rewards read it, as if a model had sampled it.

        Policies written by hand may leave out the id of a call, and write its arguments as text.
        """
        if calls := turn.get("tool_calls"):
            turn = {**turn, "tool_calls": [self._call(call) for call in calls]}
        message, stopped_by = shown(turn, ask.stop)
        return Answer(message, stopped_by=stopped_by)

    def _call(self, call: ToolCall) -> ToolCall:
        function = call["function"]
        read = FunctionCall(name=function["name"], arguments=as_arguments(function["arguments"]))
        return {"id": f"call_{next(self._ids)}", **call, "function": read}

    async def _next(self) -> Pending | None:
        assert self._agent is not None, "`first` has started it"
        call = asyncio.ensure_future(self._calls.get())
        try:
            await asyncio.wait({call, self._agent}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            call.cancel()
        await self._agent
        return None

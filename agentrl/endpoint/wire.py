"""Calls of an agent, independent of the API in which they are written, and the meaning of their messages."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from agentrl.serving import RequestError
from agentrl.types import Message, TokenIds, ToolSpec, text_of

POLICY = "policy"
"""Name of the model that is trained, on the endpoint of an episode."""

Key = bytes
"""Digest of the meaning of a conversation."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to continue a conversation. Sampling parameters are those of the episode, whatever the agent asks."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    agent: str = ""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    role: str | None = None
    """The role that is asked in place of the policy, whose name the request has in the place of the model's."""
    ids: TokenIds = ()
    """The prompt in tokens, in place of messages and tools."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The policy's message as the agent receives it."""

    message: Message
    is_cut: bool = False
    """The message ends because of a limit of tokens."""
    stopped_by: str = ""
    """The stop string before which the message ends."""
    prompt_tokens: int = 0
    ids: TokenIds = ()
    """The sampled tokens; none where there is no model."""
    logprobs: tuple[float, ...] = ()
    others_tokens: int = 0
    """The number of tokens that another model sampled."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """No other answer has it: clients replace messages of equal ids."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def token_logprobs(self) -> list[dict[str, Any]]:
        """The logprob of each sampled token, as chat completions have it; tokens are named by their ids."""
        pairs = zip(self.ids, self.logprobs, strict=True)
        return [{"token": f"token_id:{token}", "logprob": logprob, "top_logprobs": []} for token, logprob in pairs]

    @property
    def completion_tokens(self) -> int:
        """The number of sampled tokens."""
        return len(self.ids) or self.others_tokens

    @property
    def finish_reason(self) -> str:
        """Why the message ends, as in chat completions."""
        return "length" if self.is_cut else "tool_calls" if self.message.get("tool_calls") else "stop"


def keys_of(ask: Ask) -> Iterator[Key]:
    """Yield the key of the conversation before its messages, and after each of them."""
    key = _digest(b"", [ask.agent, list(ask.tools)])
    yield key
    for message in ask.messages:
        key = key_after(key, message)
        yield key


def key_after(key: Key, message: Message) -> Key:
    """Return the key of a conversation with one more message.

    Clients change the answers that they send back: they serialize arguments again, strip texts, drop the reasoning, add
    empty fields. Equal keys mean equal roles, names and texts, those of answers without surrounding white space, and
    calls with equal arguments.
    """
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    text = text_of(message)
    if message["role"] == "assistant":
        return _digest(key, ["assistant", text.strip(), calls])
    return _digest(key, [message["role"], message.get("name", ""), text])


def refused(kind: str, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> RequestError:
    """Return the error of a request that is not served; clients do not repeat one with the status 400."""
    return RequestError(status, kind, message)


def _digest(before: Key, value: Any) -> Key:
    return blake2b(before + json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()

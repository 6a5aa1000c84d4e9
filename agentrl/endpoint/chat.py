"""Chat completions of the OpenAI API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentrl.endpoint import content
from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.request import Request, invalid, most, stops, stream
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import Response
from agentrl.types import Message, ToolSpec, text_of

ROLES = {"developer": "system", "function": "tool"}
"""Roles of the API and ours, where they differ."""
REASONING = ("reasoning_content", "reasoning")


class ChatRequest(Request):
    """Body of `/v1/chat/completions`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    functions: Any = None
    function_call: Any = None
    n: int | None = None
    continue_final_message: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def ask(self, agent: str, earlier: Conversations) -> Ask:  # noqa: ARG002 (there are none)
        """Return what the request asks for; see `Request`."""
        if self.n not in (None, 1):
            invalid(f"n is {self.n}: send one request for each answer")
        if self.top_logprobs:
            invalid(f"top_logprobs is {self.top_logprobs}: only the logprobs of sampled tokens are known, leave it out")
        messages = messages_of(self.messages)
        if self.continue_final_message:
            invalid("continue_final_message is true: the policy begins its answers itself, so end with another message")
        if self.functions or self.function_call:
            invalid("functions and function_call are older than tools, which say the same: send tools")
        tools = [] if self.tool_choice == "none" else self.tools or []
        return Ask(
            messages=messages,
            tools=tuple(_tool(given, f"tools[{n}]") for n, given in enumerate(tools)),
            agent=agent,
            max_tokens=most(self.max_completion_tokens, self.max_tokens),
            stop=stops(self.stop),
        )

    def write(self, answer: Answer) -> Response:
        """Return a `chat.completion` or its chunks; see `Request`."""
        if self.stream:
            return stream(self._chunks(answer), end=b"data: [DONE]\n\n")
        choice = self._choice(answer, "message", written(answer.message)) | {"finish_reason": answer.finish_reason}
        head = self._head(answer, "chat.completion")
        return Response(msgspec.json.encode({**head, "choices": [choice], "usage": _usage(answer)}))

    def _choice(self, answer: Answer, name: str, message: dict[str, Any]) -> dict[str, Any]:
        logprobs = {"logprobs": {"content": answer.token_logprobs}} if self.logprobs else {}
        return {"index": 0, name: message, **logprobs}

    def _chunks(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream; exactly one has the usage.

        With `include_usage` it is the last one, which has no choice and which other clients cannot read.
        """
        is_apart = bool((self.stream_options or {}).get("include_usage"))
        head = self._head(answer, "chat.completion.chunk") | ({"usage": None} if is_apart else {})
        delta = written(answer.message)
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(delta["tool_calls"])]
        yield {**head, "choices": [self._choice(answer, "delta", delta) | {"finish_reason": None}]}
        choice = {"index": 0, "delta": {}, "finish_reason": answer.finish_reason}
        yield {**head, "choices": [choice], **({} if is_apart else {"usage": _usage(answer)})}
        if is_apart:
            yield {**head, "choices": [], "usage": _usage(answer)}

    def _head(self, answer: Answer, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": self.model}


def messages_of(given: Sequence[Any]) -> tuple[Message, ...]:
    """Return the messages of a conversation as ours. Raises RequestError."""
    if not given:
        invalid("messages is empty: send at least one")
    if wrong := [n for n, one in enumerate(given) if not isinstance(one, Mapping)]:
        invalid(f"messages[{wrong[0]}] is no message: send a dict with role and content")
    return tuple(message_of(dict(one), f"messages[{n}]") for n, one in enumerate(given))


def message_of(given: dict[str, Any], where: str) -> Message:
    """Return a message of the API as ours; `where` says in an error which. Raises RequestError."""
    role = str(given.get("role"))
    read: dict[str, Any] = {"role": ROLES.get(role, role), "content": content.text(given.get("content"), where)}
    if read["role"] not in ("system", "user", "assistant", "tool"):
        invalid(f"{where} has the unknown role {role!r}")
    if calls := given.get("tool_calls"):
        if not isinstance(calls, list):
            invalid(f"{where} has tool_calls that are no list")
        objects = [one if isinstance(one, dict) else {} for one in calls]
        read["tool_calls"] = [content.call(one.get("function"), one.get("id"), where) for one in objects]
    read |= {key: given[key] for key in ("tool_call_id", "name") if isinstance(given.get(key), str)}
    thought = next((given[key] for key in REASONING if isinstance(given.get(key), str)), "")
    if thought and role == "assistant":
        read["reasoning_content"] = thought
    return read  # type: ignore[return-value]


def _tool(given: dict[str, Any], where: str) -> ToolSpec:
    return content.tool(given.get("function") if given.get("type") == "function" else None, where)


def _usage(answer: Answer) -> dict[str, int]:
    total = answer.prompt_tokens + answer.completion_tokens
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": total,
    }


def written(given: Message) -> dict[str, Any]:
    """Return a message of the assistant as the API writes it."""
    calls = given.get("tool_calls")
    message: dict[str, Any] = {"role": "assistant", "content": text_of(given) or (None if calls else "")}
    if calls:
        functions = [{"name": (f := one["function"])["name"], "arguments": content.written(f)} for one in calls]
        pairs = zip(calls, functions, strict=True)
        message["tool_calls"] = [{"id": one["id"], "type": "function", "function": f} for one, f in pairs]
    if "reasoning_content" in given:
        message["reasoning_content"] = given["reasoning_content"]
    return message

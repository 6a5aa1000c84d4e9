"""Messages of the Anthropic API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from agentrl.endpoint import content
from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.request import Request, invalid, most, stops, stream
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import RequestError, Response
from agentrl.types import Message, ToolSpec, readable_arguments, text_of

ROLES = ("user", "assistant", "system")
APART = ("tool_result", "tool_use", "thinking", "redacted_thinking")
"""Types of blocks that are no part of a message's text."""
ERRORS = {HTTPStatus.UNAUTHORIZED: "authentication_error", HTTPStatus.NOT_FOUND: "not_found_error"}
"""Types of errors by status, other than those of the classes 400 and 500."""
SIGNATURE = "agentrl"
"""That of every thought, and not read again: clients take thoughts without one for those of another model."""
TOO_LONG = "prompt is too long: "
"""Words by which clients of this API recognise a full context."""


class MessagesRequest(Request):
    """Body of `/v1/messages`."""

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    output_config: dict[str, Any] | None = None
    output_format: Any = None
    stream: bool | None = None

    def ask(self, agent: str, earlier: Conversations) -> Ask:  # noqa: ARG002 (there are none)
        """Return what the request asks for; see `Request`."""
        if not self.messages:
            invalid("messages is empty: send at least one")
        if self.messages[-1].get("role") == "assistant":
            invalid("messages ends with the assistant: this endpoint does not continue an answer that is given")
        self.refuse_form("output_config.format", (self.output_config or {}).get("format"))
        self.refuse_form("output_format", self.output_format)
        system = [Message(role="system", content=content.text(self.system, "system"))] if self.system else []
        tools = [] if (self.tool_choice or {}).get("type") == "none" else self.tools or []
        messages = (one for n, given in enumerate(self.messages) for one in _messages(given, f"messages[{n}]"))
        return Ask(
            messages=(*system, *messages),
            tools=tuple(_tool(given, f"tools[{n}]") for n, given in enumerate(tools)),
            agent=agent,
            max_tokens=most(self.max_tokens),
            stop=stops(self.stop_sequences),
        )

    def write(self, answer: Answer) -> Response:
        """Return a `message` or its events; see `Request`."""
        message = self._message(answer)
        return stream(_events(message), is_named=True) if self.stream else Response(msgspec.json.encode(message))

    @staticmethod
    def error(error: RequestError) -> object:
        """Return the body of an error response, as in the Anthropic API."""
        kind = ERRORS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
        words = TOO_LONG if error.kind == "context_length_exceeded" else ""
        return {"type": "error", "error": {"type": kind, "message": f"{words}{error}"}}

    def _message(self, answer: Answer) -> dict[str, Any]:
        return {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(_blocks(answer.message)),
            "stop_reason": _stop_reason(answer),
            "stop_sequence": answer.stopped_by or None,
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens},
        }


class CountRequest(MessagesRequest):
    """Body of `/v1/messages/count_tokens`: a prompt that is counted and not answered."""

    only_counts = True

    def write(self, answer: Answer) -> Response:
        """Return the number of tokens of the prompt; see `Request`."""
        return Response(msgspec.json.encode({"input_tokens": answer.prompt_tokens}))


def _messages(given: dict[str, Any], where: str) -> Iterator[Message]:
    """Yield the messages of one message of the API: one for each result of a tool, then the rest."""
    role = given.get("role")
    if role not in ROLES:
        invalid(f"{where} has the unknown role {str(role)!r}")
    body = given.get("content")
    blocks = body if isinstance(body, list) else [{"type": "text", "text": content.text(body, where)}]
    if not all(isinstance(block, dict) for block in blocks):
        invalid(f"{where} has a part that is no object")
    results = _of("tool_result", blocks)
    for block in results:
        text = content.text(block.get("content"), where)
        yield Message(role="tool", content=text, tool_call_id=str(block.get("tool_use_id", "")))
    if len(results) < len(blocks) or not blocks:
        yield _message(role, blocks, where)


def _message(role: str, blocks: list[dict[str, Any]], where: str) -> Message:
    texts = [block for block in blocks if block.get("type") not in APART]
    read: dict[str, Any] = {"role": role, "content": content.text(texts, where)}
    if calls := [_call(block, where) for block in _of("tool_use", blocks)]:
        read["tool_calls"] = calls
    if thought := content.thought(blocks, "thinking", "thinking"):
        read["reasoning_content"] = thought
    return read  # type: ignore[return-value]


def _of(kind: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block.get("type") == kind]


def _call(block: dict[str, Any], where: str) -> Any:
    return content.call({**block, "arguments": block.get("input")}, block.get("id"), where)


def _tool(given: dict[str, Any], where: str) -> ToolSpec:
    is_own = given.get("type") in ("custom", None)
    return content.tool({**given, "parameters": given.get("input_schema")} if is_own else None, where)


def _stop_reason(answer: Answer) -> str:
    if answer.is_cut:
        return "max_tokens"
    if answer.message.get("tool_calls"):
        return "tool_use"
    return "stop_sequence" if answer.stopped_by else "end_turn"


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    text, calls = text_of(message), message.get("tool_calls") or ()
    if thought := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thought, "signature": SIGNATURE}
    if text or not calls:
        yield {"type": "text", "text": text}
    for call in calls:
        name, arguments = call["function"]["name"], readable_arguments(call["function"]["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": arguments}


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        start, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the empty block that begins a block of a stream, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": ""}, [{"type": "thinking_delta", "thinking": block["thinking"]}, signature]
        case _:
            given = json.dumps(block["input"], ensure_ascii=False)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]

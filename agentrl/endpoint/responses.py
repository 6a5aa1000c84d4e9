"""Responses of the OpenAI API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentrl.endpoint import content
from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.request import Request, invalid, most, stream
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import Response
from agentrl.types import Message, ToolSpec, text_of

ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
BEGINNINGS = ("created", "in_progress")


class ResponsesRequest(Request):
    """Body of `/v1/responses`. `input` continues the conversation of `previous_response_id`, or is the whole one."""

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    parallel_tool_calls: bool | None = None

    def ask(self, agent: str, earlier: Conversations) -> Ask:
        """Return what the request asks for; see `Request`. Instructions are not kept: each request has its own."""
        for name in ("conversation", "prompt", "background"):
            if getattr(self, name):
                invalid(f"this endpoint has no {name}: send the whole conversation as input, or previous_response_id")
        self.refuse_form("text.format", (self.text or {}).get("format"))
        before = earlier.find(self.previous_response_id) if self.previous_response_id else ()
        items = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input or []
        if not items:
            invalid("input is empty: send a text or at least one item")
        system = [Message(role="system", content=content.text(self.instructions, ""))] if self.instructions else []
        tools = [] if self.tool_choice == "none" else self.tools or []
        return Ask(
            messages=(*system, *before, *_messages(items)),
            tools=tuple(_tool(given, f"tools[{n}]") for n, given in enumerate(tools)),
            agent=agent,
            max_tokens=most(self.max_output_tokens),
        )

    def keep(self, ask: Ask, answer: Answer, kept: Conversations) -> None:
        """Keep the conversation without its instructions; see `Request`."""
        if self.store is not False:
            kept.keep(_id(answer), (*ask.messages[bool(self.instructions) :], answer.message))

    def write(self, answer: Answer) -> Response:
        """Return a `response` or its events; see `Request`."""
        response = self._response(answer)
        return stream(_events(response), is_named=True) if self.stream else Response(msgspec.json.encode(response))

    def _response(self, answer: Answer) -> dict[str, Any]:
        return {
            "id": _id(answer),
            "object": "response",
            "created_at": answer.created,
            "model": self.model,
            "status": "incomplete" if answer.is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if answer.is_cut else None,
            "error": None,
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "output": list(_output(answer)),
            "usage": _usage(answer),
            "tools": self.tools or [],
            "tool_choice": self.tool_choice or "auto",
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "metadata": {},
        }


def _id(answer: Answer) -> str:
    return f"resp_{answer.id}"


def _messages(items: list[dict[str, Any]]) -> list[Message]:
    """Return the messages of items; a turn of the assistant may consist of reasoning, a message and several calls."""
    read: list[Message] = []
    thought = ""
    for n, item in enumerate(items):
        where = f"input[{n}]"
        match item.get("type"):
            case "reasoning":
                thought += content.thought(item.get("content"), "reasoning_text", "text")
                continue
            case "message" | None:
                read.append(_message(item, where))
            case "function_call":
                if thought or not read or read[-1]["role"] != "assistant":
                    read.append(Message(role="assistant", content=""))
                calls = read[-1].setdefault("tool_calls", [])
                calls.append(content.call(item, item.get("call_id"), where))
            case "function_call_output":
                result = content.text(item.get("output"), where)
                read.append(Message(role="tool", content=result, tool_call_id=str(item.get("call_id", ""))))
            case kind:
                invalid(
                    f"{where} has the type {kind!r}: this endpoint takes messages, function calls and their outputs"
                )
        if thought and read[-1]["role"] == "assistant":
            read[-1]["reasoning_content"] = thought
        thought = ""
    return read


def _message(item: dict[str, Any], where: str) -> Message:
    role = ROLES.get(str(item.get("role")))
    if role is None:
        invalid(f"{where} has the unknown role {str(item.get('role'))!r}")
    return Message(role=role, content=content.text(item.get("content"), where))  # type: ignore[typeddict-item]


def _tool(given: dict[str, Any], where: str) -> ToolSpec:
    return content.tool(given if given.get("type") == "function" else None, where)


def _output(answer: Answer) -> Iterator[dict[str, Any]]:
    message = answer.message
    text, calls = text_of(message), message.get("tool_calls") or ()
    if thought := message.get("reasoning_content"):
        reasoning = [{"type": "reasoning_text", "text": thought}]
        yield {"type": "reasoning", "id": f"rs_{answer.id}", "summary": [], "content": reasoning}
    if text or not calls:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        about = {"role": "assistant", "status": "completed", "content": [part]}
        yield {"type": "message", "id": f"msg_{answer.id}", **about}
    for n, call in enumerate(calls):
        function = call["function"]
        named = {"call_id": call["id"], "name": function["name"], "arguments": content.written(function)}
        yield {"type": "function_call", "id": f"fc_{answer.id}_{n}", **named, "status": "completed"}


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": f"response.{name}", "response": begun} for name in BEGINNINGS]
    for index, item in enumerate(response["output"]):
        events += ({"output_index": index, **event} for event in _item_events(item))
    events.append({"type": f"response.{response['status']}", "response": response})
    yield from ({"sequence_number": n, **event} for n, event in enumerate(events))


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    here: dict[str, Any] = {"item_id": item["id"]}
    match item["type"]:
        case "message":
            (part,) = item["content"]
            here["content_index"] = 0
            yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}}
            yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **here, "delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **here, "part": part}
        case "function_call":
            written = item["arguments"]
            yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "arguments": ""}}
            yield {"type": "response.function_call_arguments.delta", **here, "delta": written}
            done = {"type": "response.function_call_arguments.done", **here, "name": item["name"]}
            yield {**done, "arguments": written}
        case "reasoning":
            yield {"type": "response.output_item.added", "item": item}
    yield {"type": "response.output_item.done", "item": item}

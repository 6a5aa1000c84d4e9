"""Parts of requests that several APIs share: texts, tool calls and tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentrl.endpoint.wire import refused
from agentrl.types import FunctionCall, Message, ToolCall, ToolSpec, as_arguments, as_unicode, text_of, why_unsendable

TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts with text, and the key of the text."""


def text(content: Any, where: str) -> str:
    """Return the text of a message's content: a text, a list of parts, or nothing. Raises RequestError for others."""
    if content is None or isinstance(content, str):
        return as_unicode(content or "")
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if not isinstance(kind, str) or kind not in TEXTS:
            raise refused("invalid_request_error", f"{where} has a part of type {kind!r}: this endpoint takes text")
        if not isinstance(part, dict) or not isinstance(part.get(TEXTS[kind]), str):
            raise refused("invalid_request_error", f"{where} has a part of type {kind!r} whose text is no string")
    return as_unicode("\n".join(part[TEXTS[part["type"]]] for part in parts))  # as vLLM joins them


def thought(parts: Any, kind: str, key: str) -> str:
    """Return the reasoning of a message: the texts `key` of its parts of type `kind`; nothing if there are none."""
    texts = (part.get(key) for part in parts if part.get("type") == kind) if _are_objects(parts) else ()
    return "".join(text for text in texts if isinstance(text, str))


def call(given: Any, id: Any, where: str) -> ToolCall:  # noqa: A002 (the field's name)
    """Return a tool call of an object with `name` and `arguments`; arguments that are no JSON object stay text."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise refused("invalid_request_error", f"{where} has a tool call without a function and its name")
    arguments = given.get("arguments") or {}
    if isinstance(arguments, dict) and (fault := why_unsendable(arguments)):
        raise refused("invalid_request_error", f"{where} has a tool call whose arguments {fault}")
    read = as_arguments(arguments if isinstance(arguments, dict) else str(arguments))
    function = FunctionCall(name=given["name"], arguments=read)
    return ToolCall(id=str(id or ""), type="function", function=function)


def tool(given: Any, where: str) -> ToolSpec:
    """Return the tool of an object with `name`, `description` and `parameters`."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise refused("invalid_request_error", f"{where} is no function with a name: this endpoint takes functions")
    parameters = given.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(name=given["name"], description=given.get("description") or "", parameters=parameters)


def written(function: FunctionCall) -> str:
    """Return the arguments of a call as JSON; those that are no object as the text that they are."""
    arguments = function["arguments"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def shown(parsed: Message, stop: Sequence[str]) -> tuple[Message, str]:
    """Return a message as an agent receives it, and the stop string before which it ends, "" if none.

    Calls that no client can read are text.
    """
    message: Message = {**parsed}
    text, calls = text_of(parsed), message.pop("tool_calls", ())
    readable = [call for call in calls if call["function"]["name"] and isinstance(call["function"]["arguments"], dict)]
    if len(readable) < len(calls):
        raw = (_raw(**call["function"]) for call in calls if call not in readable)
        text = "\n".join([text, *(f"<tool_call>{one}</tool_call>" for one in raw)]).strip()
    stopped_by = min((one for one in stop if one in text), key=text.find, default="")
    message["content"] = text.partition(stopped_by)[0] if stopped_by else text
    if readable:
        message["tool_calls"] = readable
    return message, stopped_by


def _raw(name: str, arguments: Any) -> str:
    """Return the text of a call: that which was sampled if it has no name, else the same call as JSON."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) if name else str(arguments)


def _are_objects(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)

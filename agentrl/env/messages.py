"""Checks of the messages that an environment returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.errors import EnvError, did_you_mean
from agentrl.types import Message

ROLES = ("system", "user", "assistant", "tool")
PARTS = ("text", "thinking", "image")
CALL = "{'function': {'name': …, 'arguments': {…}}}, and tool_calls as a list of these"
ROLES_ELSEWHERE = {"human": "user", "gpt": "assistant", "ai": "assistant", "bot": "assistant", "function": "tool"}
"""Names of roles in data sets, and ours."""
MAX_SHOWN, MAX_FEW = 80, 3


def is_message(value: Any) -> bool:
    """True for a chat message: a known role, and text or typed parts as content."""
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        return False
    content = value.get("content")
    is_content = isinstance(content, str) or (isinstance(content, list) and all(map(is_part, content)))
    return is_content and not tool_call_fault(value)


def tool_call_fault(message: dict[str, Any]) -> str:
    """Return what is wrong with the tool calls of a message; '' if nothing is."""
    calls = message.get("tool_calls") or ()
    wrong = [calls] if not isinstance(calls, list | tuple) else [call for call in calls if not is_call(call)]
    return f"the tool call {short(wrong[0])}; write {CALL}" if wrong else ""


def is_call(value: Any) -> bool:
    """True for a tool call: a function with its name, and its arguments as an object or as text."""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return False
    return isinstance(function.get("name"), str) and isinstance(function.get("arguments"), dict | str)


def is_turn(value: Any) -> bool:
    """True for a turn of the assistant: text, or its message."""
    return isinstance(value, str) or (is_message(value) and value["role"] == "assistant")


def is_part(value: Any) -> bool:
    """True for a content part such as {"type": "text", "text": "…"}: its type is also the key of its text."""
    return isinstance(value, dict) and value.get("type") in PARTS and isinstance(value.get(value["type"]), str)


def _part_fault(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    known = "{'type': 'text', 'text': …}"
    if isinstance(kind, str) and kind not in PARTS:
        return f"parts of the type {kind!r} are not supported, only those of text, as in {known}"
    return f"a content part has a type, as in {known}"


def checked_messages(value: Any, name: str) -> list[Message]:
    """Return the messages that the method `name` returned, as a list; EnvError if one is not a chat message.

    Text of a class of its own, such as a member of an enumeration of `str`, is the text that it equals: templates, JSON
    and files would each write another.
    """
    if isinstance(value, str | dict) or not isinstance(value, Sequence):
        raise EnvError(f"{name} returned {short(value)}; return a list of messages: [Message(role='user', content=…)]")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            raise EnvError(
                f"{name} returned the message {short(message)}; give it a role, and text or typed parts as content"
            )
        content = message["content"]
        wrong = [part for part in content if not is_part(part)] if isinstance(content, list) else []
        if wrong:
            raise EnvError(f"{name} returned the message {short(message)}; {_part_fault(wrong[0])}")
        if (role := message.get("role")) not in ROLES:
            meant = ROLES_ELSEWHERE.get(str(role), str(role))
            raise EnvError(f"{name} returned a message with the role {role!r}.{did_you_mean(meant, ROLES)}")
        if fault := tool_call_fault(message):
            raise EnvError(f"{name} returned a message with {fault}")
    return [_with_plain_text(message) for message in value]


def _with_plain_text(part: dict[str, Any]) -> Any:
    plain = {key: str.__str__(value) if isinstance(value, str) else value for key, value in part.items()}
    if isinstance(parts := plain.get("content"), list):
        plain["content"] = [_with_plain_text(one) for one in parts]
    return plain


def short(value: Any) -> str:
    """Return a value for an error message, cut at 80 characters; the type of one that cannot be shown."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def few(texts: Sequence[str]) -> str:
    """Return the first MAX_FEW texts with commas between them, and how many more there are."""
    rest = len(texts) - MAX_FEW
    return ", ".join(texts[:MAX_FEW]) + (f" and {rest} more" if rest > 0 else "")

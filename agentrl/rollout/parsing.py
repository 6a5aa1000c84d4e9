"""Parse sampled text into an assistant message, for models whose family `renderers` does not know."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, TypeGuard

from agentrl.env.tools import MAX_NAME_CHARS
from agentrl.types import FunctionCall, Message, ToolCall, ToolSpec, as_arguments, is_unicode, why_unsendable

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
THINK, THINK_END, CALL, CALL_END = MARKERS
FENCE, LANGUAGES = "```", ("json", "tool_call")


def parse_reply(text: str, tools: Sequence[ToolSpec], turn: int, is_thinking: bool = False) -> Message:
    """Return the assistant message in `text`. `is_thinking` is True if the prompt has already opened the thinking.

    Tool calls are parsed only if there are tools. A call that is not valid JSON keeps its raw text as `arguments` and
    has the name "", so that the environment can answer it.
    """
    thinking, content = split_thinking(text, is_thinking)
    calls: list[FunctionCall] = []
    if tools:
        calls, content = find_tool_calls(content, {tool["name"] for tool in tools})
    return assistant(content, thinking, [(call_id(turn, n), call) for n, call in enumerate(calls)])


def assistant(content: str, thinking: str | None = None, calls: Sequence[tuple[str, FunctionCall]] = ()) -> Message:
    """Return an assistant message; `calls` holds (id, call)."""
    message = Message(role="assistant", content=content)
    if thinking is not None:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [ToolCall(id=name, type="function", function=call) for name, call in calls]
    return message


def call_id(turn: int, number: int) -> str:
    """Return an id for a call without one: nine letters and digits, as Mistral's templates require."""
    return f"call{turn:03d}{number:02d}" if number < 100 else f"c{turn:03d}{number:05d}"


def split_thinking(text: str, is_thinking: bool = False) -> tuple[str | None, str]:
    """(thinking, answer). The answer is empty if the thinking is not closed; thinking is None if there is none."""
    opened = text.lstrip()
    if opened.startswith(THINK):
        text, is_thinking = opened[len(THINK) :], True
    if not is_thinking:
        return None, text
    thinking, _, answer = text.partition(THINK_END)
    return thinking.strip("\n"), answer.lstrip("\n")


def find_tool_calls(text: str, names: set[str]) -> tuple[list[FunctionCall], str]:
    """Return the calls in `text` and the rest of it: Hermes blocks, or else fenced JSON that names known tools."""
    if CALL in text:
        blocks, rest = cut_tags(text)
        return [read_call(block) for block in blocks], rest
    if FENCE in text:
        blocks, rest = cut_fences(text)
        calls = [read_call(block) for block in dict.fromkeys(blocks)]
        if calls and all(call["name"] in names for call in calls):
            return calls, rest
    return [], text


def cut_tags(text: str) -> tuple[list[str], str]:
    """Return the texts between tags, and the text without them, in one pass. The last tag may be unclosed."""
    blocks, kept, position = [], [], 0
    while (opened := text.find(CALL, position)) >= 0:
        kept.append(text[position:opened])
        start = opened + len(CALL)
        closed = text.find(CALL_END, start)
        end = closed if closed >= 0 else len(text)
        blocks.append(text[start:end].strip())
        position = min(end + len(CALL_END), len(text))
    return blocks, "".join([*kept, text[position:]]).strip()


def cut_fences(text: str) -> tuple[list[str], str]:
    """Return the fenced texts in braces, and the text without them, in one pass.

    A block ends at the first fence that follows a brace, because the JSON itself may contain fences.
    """
    parts = text.split(FENCE)
    ends = [n for n, part in enumerate(parts[:-1]) if part.rstrip().endswith("}")]
    blocks, kept, n = [], [parts[0]], 1
    while n < len(parts):
        opening, following = without_language(parts[n]), bisect_left(ends, n)
        if opening.startswith("{") and following < len(ends):
            end = ends[following]
            blocks.append(FENCE.join([opening, *parts[n + 1 : end + 1]]).rstrip())
            kept.append(parts[end + 1])
            n = end + 2
        else:
            kept += [FENCE, parts[n]]
            n += 1
    return blocks, "".join(kept).strip()


def without_language(part: str) -> str:
    """Return the text after a fence, without the name of its language."""
    for language in LANGUAGES:
        if part.startswith(language):
            return part[len(language) :].lstrip()
    return part.lstrip()


def read_call(block: str) -> FunctionCall:
    """Read a call from JSON text. Anything but {"name": str, "arguments": object} stays raw, under the name "".

    Arguments that cannot be written as JSON again stay raw too, because templates and services would fail on them.
    """
    try:
        value: Any = json.loads(block)
    except (ValueError, RecursionError):
        return FunctionCall(name="", arguments=block)
    name = value.get("name") if isinstance(value, dict) else None
    if not is_name(name):
        return FunctionCall(name="", arguments=block)
    arguments: Any = value.get("arguments", value.get("parameters", {}))
    if why_unsendable(arguments):
        return FunctionCall(name=name, arguments=block)
    if not isinstance(arguments, dict | str):
        arguments = json.dumps(arguments)
    return FunctionCall(name=name, arguments=as_arguments(arguments))


def is_name(name: Any) -> TypeGuard[str]:
    """True if a tool can have this name."""
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARS and is_unicode(name)

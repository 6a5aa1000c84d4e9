"""Sampled text back into an assistant message, for the models whose family `renderers` does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agentrl.types import FunctionCall, Message, ToolCall, ToolSpec

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
THINK, THINK_END = MARKERS[:2]
_HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call)?\s*(\{.*?\})\s*```", re.DOTALL)
_INSTRUCTIONS = (
    "You may call these tools, one JSON object with a description each:\n<tools>\n{tools}\n</tools>\n"
    'To call one, answer with <tool_call>{{"name": NAME, "arguments": OBJECT}}</tool_call>.'
)


def parse_reply(text: str, tools: Sequence[ToolSpec], turn: int, is_thinking: bool = False) -> Message:
    """The assistant message that `text` says; `is_thinking` when the prompt already opened the thinking.

    Tool calls are looked for only where tools were offered. A call that is not valid JSON keeps its raw text as
    `arguments` and the name "", so that the environment can answer it.
    """
    thinking, content = split_thinking(text, is_thinking)
    calls: list[FunctionCall] = []
    if tools:
        calls, content = find_tool_calls(content, {tool["name"] for tool in tools})
    message = Message(role="assistant", content=content)
    if thinking is not None:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [
            ToolCall(id=call_id(turn, n), type="function", function=call) for n, call in enumerate(calls)
        ]
    return message


def call_id(turn: int, number: int) -> str:
    """The id of a call that the model gave none: nine letters and digits, as Mistral's templates demand."""
    return f"call{turn:03d}{number:02d}"


def split_thinking(text: str, is_thinking: bool = False) -> tuple[str | None, str]:
    """(thinking, answer): no answer while the thinking is unclosed, None when nothing was thought."""
    opened = text.lstrip()
    if opened.startswith(THINK):
        text, is_thinking = opened[len(THINK) :], True
    if not is_thinking:
        return None, text
    thinking, _, answer = text.partition(THINK_END)
    return thinking.strip("\n"), answer.lstrip("\n")


def find_tool_calls(text: str, names: set[str]) -> tuple[list[FunctionCall], str]:
    """The calls in `text` and what is left of it: Hermes blocks, else fenced JSON that names a known tool."""
    if "<tool_call>" in text:
        return [read_call(block) for block in _HERMES.findall(text)], _HERMES.sub("", text).strip()
    if "```" in text:
        calls = {block: read_call(block) for block in _FENCED.findall(text)}
        known = [call for call in calls.values() if call["name"] in names]
        if known and len(known) == len(calls):
            return known, _FENCED.sub("", text).strip()
    return [], text


def read_call(block: str) -> FunctionCall:
    """One call from its JSON text; whatever is not {"name": str, "arguments": object} stays raw under the name ""."""
    try:
        value: Any = json.loads(block)
    except (ValueError, RecursionError):
        return FunctionCall(name="", arguments=block)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return FunctionCall(name="", arguments=block)
    arguments: Any = value.get("arguments", value.get("parameters", {}))
    if not isinstance(arguments, dict | str):
        arguments = json.dumps(arguments)
    return FunctionCall(name=value["name"], arguments=arguments)


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """What a model whose chat template knows no tools is told of them; `parse_reply` reads the answers."""
    return _INSTRUCTIONS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def write_calls(calls: Sequence[ToolCall]) -> str:
    """The inverse of `find_tool_calls`, for templates that know no tool calls."""
    return "".join(f"\n<tool_call>{json.dumps(call['function'], ensure_ascii=False)}</tool_call>" for call in calls)

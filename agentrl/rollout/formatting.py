"""Messages as chat templates take them: Unicode text, tool calls with objects, or tools and calls written as text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentrl.errors import EnvError
from agentrl.types import Message, ToolCall, ToolSpec, as_unicode, readable_arguments, text_of

INSTRUCTIONS = (
    "You may call these tools, one JSON object with a description each:\n<tools>\n{tools}\n</tools>\n"
    'To call one, answer with <tool_call>{{"name": NAME, "arguments": OBJECT}}</tool_call>.'
)


def flattened(message: Message) -> Message:
    """Return the message with text as content. Raises EnvError if it holds an image."""
    content = message["content"]
    if not isinstance(content, str) and any(part["type"] == "image" for part in content):
        raise EnvError(f"a {message['role']} message holds an image, and this model's chat template takes text only")
    return readable({**message, "content": text_of(message)})


def readable(message: Message) -> Message:
    """Return the message as every tokenizer and template reads it: Unicode text, objects as arguments of tool calls."""
    content = message["content"]
    result: Message = {**message, "content": as_unicode(content) if isinstance(content, str) else content}
    if "tool_calls" in message:
        result["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    return result


def _with_object(call: ToolCall) -> ToolCall:
    """Return the call; text that the model wrote instead of an object becomes the only entry of one."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": readable_arguments(function["arguments"])}}


def with_tools_as_text(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """Return the messages for a template without tools: specifications in the system message, calls in the content."""
    written: list[Message] = [
        {**message, "content": f"{message['content']}{write_calls(message.get('tool_calls') or ())}"}
        for message in messages
    ]
    if not tools:
        return written
    has_system = written[0]["role"] == "system"
    system = f"{written[0]['content']}\n\n" if has_system else ""
    instructions = INSTRUCTIONS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    return [Message(role="system", content=system + instructions), *written[has_system:]]


def write_calls(calls: Sequence[ToolCall]) -> str:
    """Write calls as text that `parsing.find_tool_calls` reads."""
    return "".join(f"\n<tool_call>{json.dumps(call['function'], ensure_ascii=False)}</tool_call>" for call in calls)

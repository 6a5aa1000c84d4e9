"""Messages as plain text, and a renderer that needs no tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.env.arguments import as_unicode
from agentrl.errors import EnvError
from agentrl.rollout.parsing import parse_reply, tool_instructions, write_calls
from agentrl.types import Message, TokenIds, ToolCall, ToolSpec, text_of

END = 0
"""The token that ends a message: NUL, which no text contains."""
VOCAB_SIZE = 256
UNREADABLE = "unreadable"
"""The key under which a template sees arguments that are not a JSON object."""


class ByteRenderer:
    """A `Renderer` without a tokenizer, for rehearsals. Tokens are the bytes of UTF-8.

    A message is `role: text` and END, with tool calls as Hermes blocks in the text.
    """

    stop_token_ids: TokenIds = (END,)

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        """Return all messages, with the tools in a system message."""
        return _written(with_tools_as_text([flattened(message) for message in messages], tools))

    def extend(
        self,
        prompt: TokenIds,  # noqa: ARG002 (unchanged, as is `sampled`)
        sampled: TokenIds,
        reply: Message,  # noqa: ARG002
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),  # noqa: ARG002 (in the first message)
    ) -> TokenIds:
        """END, unless it was sampled, and the new messages."""
        end = () if sampled[-1:] == (END,) else (END,)
        return end + _written(with_tools_as_text([flattened(message) for message in new], ()))

    def parse(
        self,
        prompt: TokenIds,  # noqa: ARG002 (all prompts end alike)
        sampled: TokenIds,
        tools: Sequence[ToolSpec] = (),
        turn: int = 0,
    ) -> Message:
        """Return the decoded bytes, with thinking and tool calls apart."""
        return parse_reply(bytes(token for token in sampled if token != END).decode(errors="replace"), tools, turn)


def encode(text: str) -> list[int]:
    """Return the tokens of a text."""
    return list(text.encode(errors="replace"))


def _written(messages: Sequence[Message]) -> TokenIds:
    """Return the messages, and the beginning of the assistant's next one."""
    written = ((*f"{message['role']}: {text_of(message)}".encode(), END) for message in messages)
    return (*(token for tokens in written for token in tokens), *b"assistant: ")


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


def with_tools_as_text(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """Return the messages for a template without tools: specifications in the system message, calls in the content."""
    written = [_with_calls_as_text(message) for message in messages]
    if not tools:
        return written
    has_system = written[0]["role"] == "system"
    system = f"{written[0]['content']}\n\n" if has_system else ""
    return [Message(role="system", content=system + tool_instructions(tools)), *written[has_system:]]


def _with_object(call: ToolCall) -> ToolCall:
    """Return the call; text that the model wrote instead of an object becomes the only entry of one."""
    arguments = call["function"]["arguments"]
    if isinstance(arguments, dict):
        return call
    return {**call, "function": {**call["function"], "arguments": {UNREADABLE: arguments}}}


def _with_calls_as_text(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    return {**message, "content": f"{message['content']}{write_calls(message['tool_calls'])}"}

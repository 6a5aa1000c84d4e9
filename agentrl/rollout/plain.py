"""PlainRenderer: messages as UTF-8 bytes, one token each. For rehearsals, which have no tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.rollout.parsing import describe_tools, parse_reply, write_calls
from agentrl.types import Message, ToolSpec, text_of

Ids = tuple[int, ...]
END = 0
"""Ends a message, as a chat template's end-of-turn token does."""
VOCAB_SIZE = 256


class PlainRenderer:
    """A Renderer without files: `role: content` for each message, tools described in a system message.

    Tool calls are written and parsed in the Hermes form, `<tool_call>{"name": …, "arguments": …}</tool_call>`.
    """

    stop_token_ids: Ids = (END,)

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole conversation and the opening of the assistant's turn."""
        described = [Message(role="system", content=describe_tools(tools))] if tools else []
        return _encoded([*described, *messages])

    def extend(
        self,
        prompt: Ids,  # noqa: ARG002 (it stays as it is)
        sampled: Ids,
        reply: Message,  # noqa: ARG002 (nothing that was sampled is rendered again)
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),  # noqa: ARG002 (described in the first prompt)
    ) -> Ids:
        """The end of the sampled turn where it has none, the new messages, and the opening of the next turn."""
        return (() if sampled[-1:] == (END,) else (END,)) + _encoded(new)

    def parse(
        self,
        prompt: Ids,  # noqa: ARG002 (every opening is the same)
        sampled: Ids,
        tools: Sequence[ToolSpec] = (),
        turn: int = 0,
    ) -> Message:
        """The assistant message that `sampled` contains."""
        text = bytes(token for token in sampled if token != END).decode(errors="replace")
        return parse_reply(text, tools, turn)


def encode(text: str) -> list[int]:
    """The bytes of a text that the model says."""
    return list(text.encode(errors="replace"))


def _encoded(messages: Sequence[Message]) -> Ids:
    parts = [f"{message['role']}: {_text(message)}".encode(errors="replace") for message in messages]
    return tuple(token for part in parts for token in (*part, END)) + tuple(b"assistant: ")


def _text(message: Message) -> str:
    return text_of(message) + write_calls(message.get("tool_calls") or ())

"""A renderer that needs no tokenizer: tokens are the bytes of UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.endpoint import ByteTokenizer
from agentrl.rollout.formatting import flattened, with_tools_as_text
from agentrl.rollout.parsing import parse_reply
from agentrl.types import Message, TokenIds, ToolSpec, text_of

END = 0
"""The token that ends a message: NUL, which no text contains."""
VOCAB_SIZE = 256


class ByteRenderer:
    """A `Renderer` without a tokenizer, for rehearsals. Tokens are the bytes of UTF-8.

    A message is `role: text` and END, with tool calls as Hermes blocks in the text.
    """

    tokenizer: Any = ByteTokenizer()
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

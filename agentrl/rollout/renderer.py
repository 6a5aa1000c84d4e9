"""The Renderer contract: messages to token ids and back, without ever changing a sampled token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from agentrl.types import Message, TokenIds, ToolSpec


class Renderer(Protocol):
    """Converts between messages and the token ids of one model. Loaded once per process and used by all episodes."""

    tokenizer: Any
    stop_token_ids: TokenIds

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        """Return the whole conversation, up to the beginning of the assistant's next message."""

    def extend(
        self,
        prompt: TokenIds,
        sampled: TokenIds,
        reply: Message,
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> TokenIds | None:
        """Return the ids that follow `prompt + sampled`: the end of the turn, `new` messages, the start of the next.

        `reply` is what `parse` made of `sampled`. None if the template would change what came before: the conversation
        must then be rendered again with `first`, as context.
        """

    def parse(self, prompt: TokenIds, sampled: TokenIds, tools: Sequence[ToolSpec] = (), turn: int = 0) -> Message:
        """Return the assistant message in `sampled`."""


@cache
def longest_token(tokenizer: Any) -> int:
    """Return how many characters a token may have: 1 if the tokens are bytes."""
    vocabulary = getattr(tokenizer, "get_vocab", None)
    return max(map(len, vocabulary())) if vocabulary else 1


def load_renderer(tokenizer: Any) -> Renderer:
    """Return the renderer of a transformers tokenizer: by model family if `renderers` knows it, else by template."""
    from renderers.base import MODEL_RENDERER_MAP

    from agentrl.rollout.model_renderers import FamilyRenderer, TemplateRenderer

    is_known = tokenizer.name_or_path in MODEL_RENDERER_MAP
    return FamilyRenderer(tokenizer) if is_known else TemplateRenderer(tokenizer)

"""Tokens: the policy as an agent calls it that writes the prompt's token ids itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agentrl.errors import AgentRLError
from agentrl.types import Completion, TokenIds, text_of


class Generate(Protocol):
    """Samples the continuation of a prompt."""

    async def __call__(self, ids: Sequence[int], max_tokens: int | None = None, stop: Sequence[str] = ()) -> Completion:
        """Return the sampled ids with their logprobs. Ids that begin with all of an earlier context continue it."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The policy as an agent calls it that writes the prompt's token ids itself."""

    tokenizer: Any
    """The tokenizer of the policy, of transformers; in an episode without a model, a `ByteTokenizer`."""
    generate: Generate
    max_context: int
    """Tokens of a prompt and its answer."""
    max_tokens: int
    """Tokens of an answer."""
    stop_token_ids: TokenIds
    """An answer ends with one of these, unless a limit or a stop string ends it."""
    temperature: float


class NoTokenizerError(AgentRLError, AttributeError):
    """An agent needs the tokenizer of a model, in an episode without a model."""


class ByteTokenizer:
    """The tokenizer of episodes without a model: the bytes of UTF-8, NUL at the end, and the marks of ChatML."""

    chat_template = "<|im_start|>role\ntext<|im_end|>\n"
    eos_token, eos_token_id = "\0", 0
    vocab_size = 256

    def __getattr__(self, name: str) -> Any:
        raise NoTokenizerError(f"the agent reads tokenizer.{name}, which only the tokenizer of a model has")

    def __len__(self) -> int:
        return self.vocab_size

    def __call__(self, text: str, add_special_tokens: bool = True, return_tensors: str | None = None) -> dict[str, Any]:
        """Return the `input_ids` of a text; as an array of one row if tensors are asked for."""
        ids = self.encode(text, add_special_tokens)
        return {"input_ids": np.array([ids]) if return_tensors else ids}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002 (there are none to add)
        """Return the bytes of a text."""
        return list(text.encode(errors="replace"))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of bytes."""
        return bytes(token for token in ids if token or not skip_special_tokens).decode(errors="replace")

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tokenize: bool = True, add_generation_prompt: bool = False
    ) -> str | list[int]:
        """Return the messages as text, or as ids."""
        turns = ((message["role"], text_of(message)) for message in messages)  # type: ignore[arg-type]
        text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)
        text += "<|im_start|>assistant\n" if add_generation_prompt else ""
        return self.encode(text) if tokenize else text


TOKENIZER: ContextVar[Any] = ContextVar("tokenizer", default=None)
"""The tokenizer of episodes without a model, a `ByteTokenizer` unless it is set: a dry run sets that of its model."""

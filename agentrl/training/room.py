"""Whether the first prompt leaves room for an answer, counted before torch or transformers are imported."""

from __future__ import annotations

from pathlib import Path

from agentrl.config.schema import Config
from agentrl.errors import catch

CHARACTERS_OF_A_TOKEN = 4


def room_note(prompt: str, config: Config, model: Path) -> str:
    """What a user should know where the text of the first prompt leaves no room in the context, else "".

    Nothing but the text is counted: a chat template and the descriptions of tools take some tokens more.
    """
    context, wanted = config.model.max_context, max(1, config.rollout.max_tokens)
    text = prompt.encode(errors="replace")
    if len(text) + wanted <= context:  # no token is shorter than a byte
        return ""
    tokens = token_count(text.decode(), model)
    if tokens + wanted <= context:
        return ""
    return (
        f"The first prompt has about {tokens:,} tokens, which leaves {max(0, context - tokens)} of model.max_context "
        f"{context} for an answer of up to {wanted} (rollout.max_tokens): raise --model.max_context, or shorten the "
        "prompt. A prompt without room is never answered, nor trained."
    )


def token_count(text: str, model: Path) -> int:
    """The tokens of a text by the tokenizer in the folder `model`; where it has no tokenizer.json, an estimate."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return len(text) // CHARACTERS_OF_A_TOKEN
    loaded = catch(Tokenizer.from_file, str(model / "tokenizer.json"))
    if loaded.error is not None:
        return len(text) // CHARACTERS_OF_A_TOKEN
    return len(loaded.value.encode(text, add_special_tokens=False).ids)

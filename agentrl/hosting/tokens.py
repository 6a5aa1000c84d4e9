"""Token ids for agents that write them themselves, where the worker is another process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from agentrl.endpoint import Tokens
from agentrl.errors import ConfigError
from agentrl.hosting.peer import Peer
from agentrl.hosting.wire import completion_of
from agentrl.types import Completion


def described(tokens: Tokens) -> dict[str, Any]:
    """Return what `tokens_of` needs: the limits, and the name or folder of the tokenizer."""
    return {
        "tokenizer": str(getattr(tokens.tokenizer, "name_or_path", "")),
        "max_context": tokens.max_context,
        "max_tokens": tokens.max_tokens,
        "stop_token_ids": tokens.stop_token_ids,
        "temperature": tokens.temperature,
    }


def tokens_of(peer: Peer, episode: int, given: Mapping[str, Any]) -> Tokens:
    """Return the tokens of an episode, which the worker at the other side samples."""
    rest = {
        **given,
        "tokenizer": DeferredTokenizer(given["tokenizer"]),
        "stop_token_ids": tuple(given["stop_token_ids"]),
    }
    return Tokens(generate=partial(_generate, peer, episode), **rest)


async def _generate(
    peer: Peer, episode: int, ids: Sequence[int], max_tokens: int | None = None, stop: Sequence[str] = ()
) -> Completion:
    call = {"ids": list(ids), "max_tokens": max_tokens, "stop": list(stop)}
    return completion_of(await peer.call("generate", episode=episode, **call))


class DeferredTokenizer:
    """The tokenizer of the policy, loaded when the agent first uses it; few agents do, and transformers is heavy."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loaded: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for methods that no tokenizer has to be loaded for
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the tokenizer."""
        return self._tokenizer(*args, **keywords)

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def _tokenizer(self) -> Any:
        if self._loaded is None:
            if not find_spec("transformers"):
                raise ConfigError(
                    f"the agent uses the tokenizer of the model: {sys.executable} -m pip install transformers"
                )
            from transformers import AutoTokenizer

            self._loaded = AutoTokenizer.from_pretrained(self._name)
        return self._loaded

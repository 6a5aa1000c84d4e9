"""What a reward-model server serves: a function from texts to scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentrl.types import Message

Ids = Sequence[int]


class TextError(Exception):
    """A text that the model cannot score; `kind` is the type of the error for programs."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Scorer(Protocol):
    """What a server serves. `encode` may be called by several threads, `scores` by one."""

    name: str

    def encode(self, given: str | Sequence[Message]) -> list[int]:
        """Return the token ids of a text or a conversation. Raises TextError."""

    def scores(self, batch: Sequence[Ids]) -> list[float]:
        """Return the score of each row."""

"""Conversations of one episode that later requests continue by an id."""

from __future__ import annotations

from agentrl.endpoint.wire import refused
from agentrl.types import Message

MOST = 256
"""Conversations that are kept; the oldest is forgotten first."""


class Conversations:
    """Conversations of one episode by the ids of their last answers."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Message, ...]] = {}

    def keep(self, id: str, messages: tuple[Message, ...]) -> None:  # noqa: A002 (the field's name)
        """Keep a conversation."""
        self._kept[id] = messages
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]

    def find(self, id: str) -> tuple[Message, ...]:  # noqa: A002 (the field's name)
        """Return a conversation. Raises RequestError if it is not kept."""
        if id not in self._kept:
            reason = f"no response {id!r}: this episode's endpoint keeps its last {MOST} responses, without store=false"
            raise refused("previous_response_not_found", reason)
        return self._kept[id]

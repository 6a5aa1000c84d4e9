"""The two spaces of a conversation, in Gymnasium's terms."""
# ruff: noqa: ARG002  (`sample` keeps Gymnasium's signature; masks have no meaning here)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import Space

from agentrl.errors import EnvError, did_you_mean
from agentrl.types import Message

ROLES = ("system", "user", "assistant", "tool")
PARTS = ("text", "thinking", "image")
SPOKEN = {"human": "user", "gpt": "assistant", "ai": "assistant", "bot": "assistant", "function": "tool"}
"""Other words for them, in data sets."""
MOST_SHOWN = 80
WORDS = ("yes", "no", "1", "2", "3", "higher", "lower", "I", "think", "the", "answer", "is")


def is_message(value: Any) -> bool:
    """True for a chat message: a known role, and text or typed parts as content."""
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        return False
    content = value.get("content")
    return isinstance(content, str) or (isinstance(content, list) and all(map(is_part, content)))


def is_part(value: Any) -> bool:
    """True for a part of a content, such as {"type": "text", "text": "…"}: its type names where its words are."""
    return isinstance(value, dict) and value.get("type") in PARTS and isinstance(value.get(value["type"]), str)


def spoken(value: Any, what: str) -> list[Message]:
    """What an environment says, checked; EnvError says what is no message of a conversation."""
    if isinstance(value, str | dict) or not isinstance(value, Sequence):
        raise EnvError(f"{what} returned {short(value)}; return a list of messages: [Message(role='user', content=…)]")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            raise EnvError(f"{what} said {short(message)}; a message has a role, and text or typed parts as content")
        if isinstance(content := message["content"], list) and not all(map(is_part, content)):
            raise EnvError(f"{what} said {short(message)}; a part of a content is typed: {{'type': 'text', 'text': …}}")
        if (role := message.get("role")) not in ROLES:
            raise EnvError(
                f"{what} speaks as {role!r}: unknown role.{did_you_mean(SPOKEN.get(str(role), str(role)), ROLES)}"
            )
    return list(value)


def short(value: Any) -> str:
    """A value for an error message."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


class ChatSpace(Space[list[Message]]):
    """Lists of messages: what an environment says."""

    def contains(self, x: Any) -> bool:
        """True for a list of messages, the empty one included."""
        return isinstance(x, list) and all(map(is_message, x))

    def sample(self, mask: Any = None, probability: Any = None) -> list[Message]:
        """One user message of random words."""
        return [Message(role="user", content=words(self))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatSpace)


class TurnSpace(Space[Message | str]):
    """Turns of the assistant: its text, or its message with tool calls."""

    def contains(self, x: Any) -> bool:
        """True for text and for an assistant's message."""
        return isinstance(x, str) or (is_message(x) and x["role"] == "assistant")

    def sample(self, mask: Any = None, probability: Any = None) -> Message | str:
        """A few random words, as text."""
        return words(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnSpace)


def words(space: Space[Any]) -> str:
    """One to six random words from the space's own generator."""
    count = int(space.np_random.integers(1, 7))
    return " ".join(WORDS[i] for i in space.np_random.integers(0, len(WORDS), count))

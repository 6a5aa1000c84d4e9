"""Messages, as environment authors see them: the OpenAI chat format, with text or typed parts as content."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict


class TextPart(TypedDict):
    """A piece of text inside a message."""

    type: Literal["text"]
    text: str


class ThinkingPart(TypedDict):
    """The model's reasoning, separate from its answer."""

    type: Literal["thinking"]
    thinking: str


class ImagePart(TypedDict):
    """An image by path or URL."""

    type: Literal["image"]
    image: str


Part = TextPart | ThinkingPart | ImagePart


class FunctionCall(TypedDict):
    """A function and its arguments: an object, or the raw text when the model did not write a JSON object."""

    name: str
    arguments: dict[str, Any] | str


class ToolCall(TypedDict, total=False):
    """One tool call of an assistant message."""

    id: str
    type: str
    function: Required[FunctionCall]


class Message(TypedDict, total=False):
    """One message of a conversation."""

    role: Required[Literal["system", "user", "assistant", "tool"]]
    content: Required[str | list[Part]]
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning_content: NotRequired[str]


class ToolSpec(TypedDict):
    """Description of a tool for the model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


TOOL_ERROR = "error: "
"""Prefix of the tool message of a failed call."""


def text_of(message: Message) -> str:
    """Return the text of a message: its string content, or its text parts joined."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def is_unicode(text: str) -> bool:
    """False for text with a lone surrogate, which JSON can express and no encoding can write."""
    return text.isascii() or text.encode(errors="replace").decode() == text


def as_unicode(text: str) -> str:
    """Replace each lone surrogate by `?`, so that every tokenizer, service and file accepts the text."""
    return text if text.isascii() else text.encode(errors="replace").decode()

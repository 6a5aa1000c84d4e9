"""The arguments of a tool call: JSON that can be passed on to any service, or an error for the model."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_CHARACTERS = 1 << 20
"""Of arguments as text."""
MOST_DEPTH = 64
"""Levels of lists and objects: what is read here is written again in deeper stacks, such as a chat template's."""


class BadCallError(Exception):
    """A call the model got wrong; the message is for the model."""


def as_object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """The arguments as an object that can be written as JSON again; BadCallError for whatever else a model wrote."""
    value = parsed(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise BadCallError("the arguments must be a JSON object")
    if fault := why_unsendable(value):
        raise BadCallError(f"the arguments {fault}")
    return value


def parsed(text: str) -> Any:
    """JSON text as a value; BadCallError for text that is too long, no JSON, nested too deep, or has a huge number."""
    if len(text) > MOST_CHARACTERS:
        raise BadCallError(f"the arguments are longer than {MOST_CHARACTERS} characters")
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadCallError(f"the arguments are not valid JSON: {error}") from error


def why_unsendable(value: Any) -> str:
    """Why a value that was read from JSON cannot be written as JSON that everybody reads; '' when it can."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str) and not is_unicode(item):
            return "hold half of a surrogate pair, which is no Unicode text"
        if isinstance(item, float) and not math.isfinite(item):
            return "hold NaN or an infinite number, which JSON does not know"
        if not isinstance(item, dict | list):
            continue
        if depth > MOST_DEPTH:
            return f"are nested deeper than {MOST_DEPTH} levels"
        parts = [*item, *item.values()] if isinstance(item, dict) else item
        waiting += [(part, depth + 1) for part in parts]
    return ""


def is_unicode(text: str) -> bool:
    """False for text with a lone surrogate, which JSON can spell and no encoding can write."""
    return text.isascii() or text.encode(errors="replace").decode() == text


def as_unicode(text: str) -> str:
    """The text with `?` for each lone surrogate: any tokenizer, service and file takes it."""
    return text if text.isascii() else text.encode(errors="replace").decode()

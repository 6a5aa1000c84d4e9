"""Arguments of a tool call: JSON that any service accepts, or an error for the model."""

from __future__ import annotations

import json
import math
from typing import Any

from agentrl.types import is_unicode

MAX_CHARACTERS = 1 << 20
"""Length of arguments as text."""
MAX_DEPTH = 64
"""Nesting of lists and objects; serializing them again, as in a chat template, uses more of the stack."""


class BadCallError(Exception):
    """The model made an invalid call; the message is for the model."""


def as_object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """Read arguments as an object that can be serialized as JSON again; raises BadCallError for anything else."""
    value = parsed(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise BadCallError("the arguments must be a JSON object")
    if fault := why_unsendable(value):
        raise BadCallError(f"the arguments {fault}")
    return value


def parsed(text: str) -> Any:
    """Parse JSON; raises BadCallError for text that is too long, invalid, too deeply nested, or has a huge number."""
    if len(text) > MAX_CHARACTERS:
        raise BadCallError(f"the arguments are longer than {MAX_CHARACTERS} characters")
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadCallError(f"the arguments are not valid JSON: {error}") from error


def why_unsendable(value: Any) -> str:
    """Return why a value read from JSON cannot be serialized as standard JSON again; '' if it can."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str) and not is_unicode(item):
            return "contain half of a surrogate pair, which is not Unicode text"
        if isinstance(item, float) and not math.isfinite(item):
            return "contain NaN or an infinite number, which JSON does not allow"
        if not isinstance(item, dict | list):
            continue
        if depth > MAX_DEPTH:
            return f"are nested deeper than {MAX_DEPTH} levels"
        parts = [*item, *item.values()] if isinstance(item, dict) else item
        waiting += [(part, depth + 1) for part in parts]
    return ""

"""Arguments of tool calls as JSON that any service accepts."""

from __future__ import annotations

import json
import math
from typing import Any

from agentrl.types.messages import as_unicode, is_unicode

MAX_DEPTH = 64
"""Nesting of lists and objects; serializing them again, as in a chat template, uses more of the stack."""


def as_arguments(given: dict[str, Any] | str) -> dict[str, Any] | str:
    """Return arguments as an object, also those that are one as JSON text; any other text stays what it is."""
    if not isinstance(given, str):
        return given
    try:
        value = json.loads(given or "{}")
    except (ValueError, RecursionError):
        return as_unicode(given)
    return value if isinstance(value, dict) and not why_unsendable(value) else as_unicode(given)


def readable_arguments(given: dict[str, Any] | str) -> dict[str, Any]:
    """Return arguments as an object, which every template and service takes; text that is none is its only entry."""
    read = as_arguments(given)
    return read if isinstance(read, dict) else {"unreadable": read}


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

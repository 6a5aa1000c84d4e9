"""Arguments of a tool call: JSON that any service accepts, or an error for the model."""

from __future__ import annotations

import json
from typing import Any

from agentrl.types import why_unsendable

MAX_CHARACTERS = 1 << 20
"""Length of arguments as text."""


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

"""Patterns of RE2, which reads the text of a model in linear time."""

from __future__ import annotations

from typing import Any

import re2

QUIET = re2.Options()
QUIET.log_errors = False


def compiled(pattern: str) -> Any:
    """Compile a pattern. Raises ValueError with the reason if it is none."""
    try:
        return re2.compile(pattern, QUIET)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from None

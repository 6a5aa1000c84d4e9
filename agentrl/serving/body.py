"""Bodies and messages in JSON, as clients of other libraries write them."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")

SURROGATE = rb"\ud"
"""How the escapes of all surrogates begin, those of pairs too."""


def decoded(body: bytes, kind: type[T]) -> T:
    r"""Decode JSON as a `kind`. Raises ValueError and RecursionError.

    Half of an escaped surrogate pair, which JSON can express and msgspec refuses, becomes `?`.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        if SURROGATE not in body.lower():
            raise
    return msgspec.json.decode(without_halves(body.decode()), type=kind)


def without_halves(text: str) -> bytes:
    r"""Return the same JSON, in which half of an escaped surrogate pair (`\ud83d`) is `?`.

    Raises ValueError and RecursionError.
    """
    return json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")

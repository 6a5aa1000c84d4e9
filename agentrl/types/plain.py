"""Values of authors and models as plain data, which every process and file can take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from agentrl.errors import as_text, catch

DEEPEST = 32


def as_json(value: Any) -> bytes:
    """Return a value as JSON, as Python's `json` writes it; what JSON cannot express becomes text."""
    made = catch(partial(json.dumps, default=_shallow), value)
    if made.error:  # nested too deeply, in a circle, an integer of 5,000 digits, an object that cannot be read
        return json.dumps(plain(value), default=repr).encode()
    return str(made.value).encode()


def _shallow(value: Any) -> Any:
    if _is_record(value):
        return _record(value)
    return repr(value) if isinstance(value, bytes) else plain(value)


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value in the types of msgpack: UTF-8 text, 64-bit integers, lists and dicts of bounded depth.

    Never raises: a value that cannot be read is its `repr`, or the name of its type.
    """
    made = catch(_plain, value, depth)
    return _utf8(as_text(value)) if made.error else made.value


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return _utf8(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float | bytes):  # msgspec rejects their subclasses
        return float(value) if isinstance(value, float) else bytes(value)
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 63 else hex(value)
    if depth == DEEPEST:
        return "(nested too deeply to be stored)"
    if _is_record(value):
        value = _record(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return _utf8(repr(value))


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _record(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _key(key: Any) -> str:
    return _utf8(key if isinstance(key, str) else as_text(key, str))


def _utf8(text: str) -> str:
    text = str.__str__(text)  # of a member of an enumeration, the text that it equals
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

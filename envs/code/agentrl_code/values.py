"""Plain data as trees of lists, strings and numbers: the only thing that enters or leaves a sandbox.

A scalar is itself; everything else is a list that begins with its type's name. Types are exact: instances of subclasses
and a program's own objects are not plain data; they stay where they are and can be referenced. This file also runs
inside the sandboxes, so it imports almost nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_DEPTH = 128
MOST_BYTES = 16 << 20
"""Maximum size of one answer as text."""
MOST_WEIGHT = 1 << 20
WEIGHT = 8
"""Weight of a container in one answer; a scalar weighs 1. An empty deque takes 800 bytes of memory."""
CHUNK = 1 << 16
MOST_TWINS = 100
"""Maximum entries of a set or dict with colliding hashes: more are an attack on the reader."""
MOST_FRACTION_BITS = 1 << 14
"""Maximum size of numerator and denominator, because reducing larger ones is slow."""
SMALL = 1 << 53
SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
MAPPINGS = ("dict", "Counter", "OrderedDict", "defaultdict")
REFERENCES = ("ref", "class", "name", "named", "slice")
"""Kinds of references to things that stay where they are: an object, a class, a name; a named tuple adds its values.

A slice is a reference too, in one direction only: tests may pass it, programs cannot return it.
"""
KEYS: type = type({}.keys())
TYPES = {kind.__name__: kind for kind in (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset)}
ON_HEAP = 1 << 9
"""Flag of types that are not built in."""
LIBRARY = {
    "Counter": "collections",
    "OrderedDict": "collections",
    "defaultdict": "collections",
    "deque": "collections",
    "Decimal": "decimal",
    "Fraction": "fractions",
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
    "timedelta": "datetime",
}
"""Supported types of the standard library and their modules."""


class UnplainError(Exception):
    """A value that is not plain data, too deep, or made to be slow to read."""


class UnreadableError(Exception):
    """A tree that `to_tree` never produces."""


def weight(text: bytes) -> int:
    """Return the weight of the values in JSON text without parsing it; a string weighs as one value.

    Counting stops above MOST_WEIGHT.
    """
    plain = text.replace(rb"\\", b"__").replace(rb"\"", b"__")
    total, is_inside = 0, False
    for start in range(0, len(plain), CHUNK):
        pieces = plain[start : start + CHUNK].split(b'"')
        outside = b"".join(pieces[is_inside::2])
        total += outside.count(b",") + WEIGHT * (outside.count(b"[") + outside.count(b"{"))
        is_inside ^= len(pieces) % 2 == 0
        if total > MOST_WEIGHT:
            break
    return total


def to_tree(value: Any, refer: Callable[[Any, int], Any] | None = None, depth: int = 0) -> Any:
    """Return the tree of a value; `refer(value, depth)` returns that of other objects, else they raise UnplainError."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else ["int", hex(value)]
    if depth > MOST_DEPTH:
        raise UnplainError("a value nested too deep")
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return [kind.__name__, *[to_tree(item, refer, depth + 1) for item in value]]
    if kind is dict:
        return ["dict", *_pairs(value, refer, depth)]
    parts = _parts(value, kind, refer, depth)
    if parts is not None:
        return parts
    if refer is None:
        raise UnplainError(f"an object of type {kind.__name__}")
    return refer(value, depth)


def _pairs(value: Any, refer: Callable[[Any, int], Any] | None, depth: int) -> list[Any]:
    return [to_tree(part, refer, depth + 1) for item in value.items() for part in item]


def _parts(value: Any, kind: Any, refer: Callable[[Any, int], Any] | None, depth: int) -> list[Any] | None:
    """Return the tree of a rarer type; None if the type is not supported."""
    name: str = kind.__name__
    if kind is bytes or kind is bytearray:
        return [name, value.hex()]
    if kind is complex:
        return [name, value.real, value.imag]
    if kind is range:
        return [name, *[to_tree(part) for part in (value.start, value.stop, value.step)]]
    if kind is type and any(value is known for known in TYPES.values()):
        return ["type", value.__name__]
    if value is NotImplemented:
        return ["NotImplemented"]
    if issubclass(kind, KEYS):
        return ["dict_keys", *[to_tree(key, refer, depth + 1) for key in value]]
    if getattr(sys.modules.get(LIBRARY.get(name, "")), name, None) is not kind:
        return None
    if name in MAPPINGS:
        return [name, *_pairs(value, refer, depth)]
    if name == "deque":
        return [name, *[to_tree(item, refer, depth + 1) for item in value]]
    if name == "Fraction":
        return [name, to_tree(value.numerator), to_tree(value.denominator)]
    if name == "timedelta":
        return [name, value.days, value.seconds, value.microseconds]
    return [name, str(value) if name == "Decimal" else value.isoformat()]


def from_tree(tree: Any, find: Callable[..., Any] | None = None, depth: int = 0) -> Any:
    """Return the value of a tree; `find(*reference)` resolves references; UnreadableError if the tree is invalid."""
    kind = type(tree)
    if tree is None or kind in (bool, int, float, str):
        return tree
    if kind is not list or not tree or type(tree[0]) is not str or depth > MOST_DEPTH + 1:
        raise UnreadableError("not a tree of a value")
    try:
        return _value(tree[0], tree[1:], find, depth)
    except (ValueError, TypeError, ArithmeticError, IndexError, OverflowError) as problem:
        raise UnreadableError(f"a bad {tree[0][:40]}: {problem}") from None


def _value(name: str, parts: list[Any], find: Callable[..., Any] | None, depth: int) -> Any:
    if name in REFERENCES:
        if find is None:
            raise UnreadableError("an unexpected reference")
        items = [from_tree(part, find, depth + 1) for part in parts[3:]]
        return find(name, *parts[:3], items) if name == "named" else find(name, *parts)
    if name in ("type", "int", "bytes", "bytearray", "Decimal", "date", "datetime", "time"):
        return _from_text(name, *parts)
    items = [from_tree(part, find, depth + 1) for part in parts]
    if name in ("list", "tuple"):
        return SEQUENCES[name](items)
    if name in SEQUENCES:
        return SEQUENCES[name](_keys(items))
    if name == "dict_keys":
        return dict.fromkeys(_keys(items)).keys()
    if name == "NotImplemented":
        return NotImplemented
    if name in MAPPINGS:
        return _mapping(name, dict(zip(_keys(items[::2]), items[1::2], strict=True)))
    if name in ("complex", "range"):
        return (complex if name == "complex" else range)(*items)
    if name == "Fraction" and [type(item) for item in items] != [int, int]:
        raise UnreadableError("a bad Fraction")
    if name == "Fraction" and max(item.bit_length() for item in items) > MOST_FRACTION_BITS:
        raise UnplainError("a Fraction with too many digits")
    return from_library(name)(items) if name == "deque" else from_library(name)(*items)


def _keys(keys: list[Any]) -> list[Any]:
    if len(set(map(hash, keys))) < len(keys) - MOST_TWINS:
        raise UnplainError("too many keys with colliding hashes")
    return keys


def _from_text(name: str, text: Any) -> Any:
    if type(text) is not str:
        raise UnreadableError(f"a bad {name}")
    if name == "type":
        return TYPES[text] if text in TYPES else from_library("")
    if name == "int":
        return int(text, 16)
    if name in ("bytes", "bytearray"):
        return (bytes if name == "bytes" else bytearray).fromhex(text)
    return from_library(name)(text) if name == "Decimal" else from_library(name).fromisoformat(text)


def _mapping(name: str, entries: dict[Any, Any]) -> Any:
    if name == "dict":
        return entries
    kind = from_library(name)
    return kind(None, entries) if name == "defaultdict" else kind(entries)


def from_library(name: str) -> Any:
    """Return a supported type of the standard library."""
    if name not in LIBRARY:
        raise UnreadableError(f"a value of the type {name[:40]!r}")
    return getattr(__import__(LIBRARY[name]), name)

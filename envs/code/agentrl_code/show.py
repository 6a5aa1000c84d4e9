"""Values of a program as text: only known types, and only as much as is shown.

The `repr` of library types can raise on values that a program made, as that of a Counter does, or take seconds.
"""

from collections.abc import Callable, Iterable, Iterator, KeysView
from itertools import chain
from typing import Any

MOST_SHOWN = 200
MOST_BITS = 1 << 10
"""Maximum size of a number that is shown in digits."""
_BRACKETS = {"list": "[]", "tuple": "()", "set": "{}"}
_ROWS = ("list", "tuple", "set", "frozenset", "deque")
_MAPPINGS = ("dict", "Counter", "OrderedDict", "defaultdict")
_SHORT = ("bool", "float", "complex", "NoneType", "NotImplementedType", "date", "datetime", "time", "timedelta")
"""Types whose `repr` is short and cannot fail."""


class Shown:
    """Base of types that define their own short text, which cannot fail."""

    def pieces(self) -> Iterator[str]:
        """Return the text in pieces; by default the type's name."""
        return iter([f"<an object of type {type(self).__name__}>"])


def shown(value: Any) -> str:
    """Return a value as text, truncated to MOST_SHOWN; the rest is not visited."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MOST_SHOWN:
            return f"{text[:MOST_SHOWN]}…"
    return text


def bracketed(items: Iterable[Any], brackets: str) -> Iterator[str]:
    """Yield items between brackets."""
    return chain(brackets[:1], _joined(map(_pieces, items)), brackets[1:])


def _pieces(value: Any) -> Iterator[str]:
    kind = type(value)
    name = kind.__name__
    if isinstance(value, Shown):
        return value.pieces()
    if kind in (str, bytes, bytearray):
        return iter([repr(value[: MOST_SHOWN + 1])])
    if kind is int:
        return iter([_number(value)])
    if kind is tuple and len(value) == 1:
        return chain("(", _pieces(value[0]), [",)"])
    if name in _ROWS or isinstance(value, KeysView):
        return _row(value, name)
    if name in _MAPPINGS:
        pairs = chain("{", _joined(_pair(*pair) for pair in value.items()), "}")
        return pairs if kind is dict else chain([f"{name}("], pairs, ")")
    if name in _LIBRARY:
        return chain([_LIBRARY[name](value)])
    return iter([repr(value) if name in _SHORT else f"<an object of type {name}>"])


def _row(value: Any, name: str) -> Iterator[str]:
    if name in _BRACKETS and (value or name != "set"):
        return bracketed(value, _BRACKETS[name])
    return chain([f"{name}("], bracketed(value, "{}" if name == "frozenset" else "[]") if value else (), ")")


def _pair(key: Any, value: Any) -> Iterator[str]:
    return chain(_pieces(key), [": "], _pieces(value))


def _joined(parts: Iterable[Iterator[str]]) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield ", "
        yield from part


def _number(value: int) -> str:
    return str(value) if value.bit_length() <= MOST_BITS else f"<a number of {value.bit_length()} bits>"


def _decimal(value: Any) -> str:
    is_long = value.__sizeof__() > MOST_BITS
    return "<a Decimal of many digits>" if is_long else f"Decimal('{value!s}')"


def _range(value: range) -> str:
    parts = (value.start, value.stop, value.step)[: 2 if value.step == 1 else 3]
    return f"range({', '.join(map(_number, parts))})"


_LIBRARY: dict[str, Callable[[Any], str]] = {
    "Decimal": _decimal,
    "Fraction": lambda value: f"Fraction({_number(value.numerator)}, {_number(value.denominator)})",
    "range": _range,
    "type": lambda value: f"<class {value.__name__!r}>",
}

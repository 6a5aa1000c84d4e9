"""Answers of the program's side to one request, parsed without trusting them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast

from agentrl_code.show import Shown, bracketed
from agentrl_code.values import UnplainError, UnreadableError, from_tree
from agentrl_code.verdict import printable

_SHAPES = {"value": 2, "raised": 5, "refused": 1}
_MISHAPS = (ArithmeticError, ValueError, TypeError, LookupError, RecursionError, AttributeError)
"""Errors that Python and its library raise on unexpected data."""


class ForeignError(Exception):
    """The program returned one of its own objects where data is needed."""


class Foreign(Shown):
    """An object of the program, which stays in its sandbox and is never compared.

    It is true if its class does not define otherwise, which reveals no more than an answer of True.
    """

    def __init__(self, type_name: str, is_true: bool = False) -> None:
        self._type_name, self._is_true = printable(type_name), is_true

    def __bool__(self) -> bool:
        return self._is_true or self._refused()

    def __repr__(self) -> str:
        return f"<an object of type {self._type_name}>"

    def pieces(self) -> Iterator[str]:
        """Return its type's name; nothing more is known."""
        return iter([repr(self)])

    def _refused(self, *_: object) -> Any:
        raise ForeignError(f"{self!r}, which is not compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = __iter__ = __contains__ = __len__ = _refused


class Named(tuple[Any, ...], Shown):
    """A named tuple of the program: equal to a tuple for Python's `==`, but of another type."""

    _type_name: str

    def __new__(cls, type_name: str, items: Iterable[Any]) -> "Named":
        """Create a tuple that knows its type's name."""
        named = super().__new__(cls, items)
        named._type_name = printable(type_name)
        return named

    def pieces(self) -> Iterator[str]:
        """Return its type's name and the tuple."""
        return chain([self._type_name], bracketed(self, "()"))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: a `value`, an exception it `raised`, or why it was `refused`; `parts` are unparsed."""

    kind: Literal["value", "raised", "refused"]
    parts: list[Any]
    value: Any = None

    @classmethod
    def of(cls, frame: Any) -> "Reply":
        """Parse the reply in a frame; UnreadableError if it is malformed."""
        is_known = isinstance(frame, list) and bool(frame) and isinstance(frame[0], str) and frame[0] in _SHAPES
        if not is_known or _SHAPES[frame[0]] != len(frame) - 1:
            raise UnreadableError("an answer of unknown form")
        kind, *parts = frame
        if kind == "value":
            with handled():
                return cls._of_value(parts)
        if not all(isinstance(part, str) for part in parts[:2]) or not all(
            isinstance(part, int) for part in parts[2:3]
        ):
            raise UnreadableError("an answer of unknown form")
        return cls(cast(Literal["raised", "refused"], kind), parts)

    @classmethod
    def _of_value(cls, parts: list[Any]) -> "Reply":
        try:
            if parts[1] is not None:
                from_tree(parts[1], foreign)
            return cls("value", parts, from_tree(parts[0], foreign))
        except ForeignError as problem:
            return cls("refused", [f"{problem}, as a key"])
        except UnplainError as problem:
            return cls("refused", [str(problem)])

    @property
    def complaint(self) -> str:
        """What went wrong, as a phrase; '' for a value."""
        if self.kind == "value":
            return ""
        if self.kind == "refused":
            return f"gave {self.parts[0]}"
        name, message, line, *_ = self.parts
        where = f" (line {line} of the program)" if line else ""
        return f"raised {name}: {message}{where}" if message else f"raised {name}{where}"


@contextmanager
def handled() -> Iterator[None]:
    """Turn errors of a block that handles an answer into UnreadableError, because the answer causes them."""
    try:
        yield
    except _MISHAPS as problem:
        raise UnreadableError(f"{type(problem).__name__} when handling a value of the program") from None


def foreign(kind: str, key: object, name: object, of: object = 0, rest: Any = ()) -> Foreign | Named:
    """Return the stand-in for a reference to an object of the program."""
    if kind in ("name", "slice") or not (isinstance(key, int) and isinstance(name, str) and isinstance(of, int)):
        raise UnreadableError("a reference of unknown form")
    return Named(name, rest) if kind == "named" else Foreign(name, is_true=rest is True)

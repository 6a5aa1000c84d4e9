"""What the program's side answered to one request, read without believing any of it."""

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
"""What Python and its library raise over data that they do not expect."""


class ForeignError(Exception):
    """An object of the program's own stood where data was wanted."""


class Foreign(Shown):
    """An object of the program's own: it stayed there, and is never compared.

    It is true where its class does not say otherwise, which tells no more than an answer of True.
    """

    def __init__(self, type_name: str, is_true: bool = False) -> None:
        self._type_name, self._is_true = printable(type_name), is_true

    def __bool__(self) -> bool:
        return self._is_true or self._refused()

    def __repr__(self) -> str:
        return f"<an object of type {self._type_name}>"

    def pieces(self) -> Iterator[str]:
        """Its type's name: nothing more is known."""
        return iter([repr(self)])

    def _refused(self, *_: object) -> Any:
        raise ForeignError(f"{self!r}, which is not compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = __iter__ = __contains__ = __len__ = _refused


class Named(tuple[Any, ...], Shown):
    """A named tuple of the program's own: a tuple to Python's `==`, and of another type."""

    _type_name: str

    def __new__(cls, type_name: str, items: Iterable[Any]) -> "Named":
        """Return a tuple that knows its type's name."""
        named = super().__new__(cls, items)
        named._type_name = printable(type_name)
        return named

    def pieces(self) -> Iterator[str]:
        """As a tuple behind its type's name."""
        return chain([self._type_name], bracketed(self, "()"))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: a `value`, an exception it `raised`, or why it was `refused`; `parts` as they came."""

    kind: Literal["value", "raised", "refused"]
    parts: list[Any]
    value: Any = None

    @classmethod
    def of(cls, frame: Any) -> "Reply":
        """Return the reply in a frame; UnreadableError when there is none."""
        is_known = isinstance(frame, list) and bool(frame) and isinstance(frame[0], str) and frame[0] in _SHAPES
        if not is_known or _SHAPES[frame[0]] != len(frame) - 1:
            raise UnreadableError("an answer of no known form")
        kind, *parts = frame
        if kind == "value":
            with handled():
                return cls._of_value(parts)
        if not all(isinstance(part, str) for part in parts[:2]) or not all(
            isinstance(part, int) for part in parts[2:3]
        ):
            raise UnreadableError("an answer of no known form")
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
        """What went wrong, in a sentence; '' for a value."""
        if self.kind == "value":
            return ""
        if self.kind == "refused":
            return f"gave {self.parts[0]}"
        name, message, line, *_ = self.parts
        where = f" (line {line} of the program)" if line else ""
        return f"raised {name}: {message}{where}" if message else f"raised {name}{where}"


@contextmanager
def handled() -> Iterator[None]:
    """A block that deals with an answer: whatever goes wrong in it is the answer's doing, an UnreadableError."""
    try:
        yield
    except _MISHAPS as problem:
        raise UnreadableError(f"{type(problem).__name__} over a value of the program's") from None


def foreign(kind: str, key: object, name: object, of: object = 0, rest: Any = ()) -> Foreign | Named:
    """What stands here for a reference to something of the program's."""
    if kind in ("name", "slice") or not (isinstance(key, int) and isinstance(name, str) and isinstance(of, int)):
        raise UnreadableError("a reference of no known form")
    return Named(name, rest) if kind == "named" else Foreign(name, is_true=rest is True)

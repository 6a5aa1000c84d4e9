"""Which objects of the program a test means: only those may get data of the test, such as the expected result."""

from __future__ import annotations

from agentrl_code.inside.errors import ForeignError
from agentrl_code.inside.references import PLAIN, facts, is_class, number_of
from agentrl_code.values import KEYS, LIBRARY, from_library

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from typing import Any

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
UNARY = (
    "call len iter next reversed contains getitem setitem delitem enter exit int float complex index round abs neg pos "
    "invert format bytes divmod trunc floor ceil"
)
SPECIAL = tuple(
    f"__{name}__" for name in UNARY.split() + [way + name for name in BINARY.split() for way in ("", "r", "i")]
)
"""Special methods that are forwarded to objects of the program that have them; comparisons are not forwarded."""

named: set[type] = set()
"""Classes that the test names, with a capital letter."""
made: set[int] = set()
"""Numbers of objects that the test made by calling named classes."""
checked: set[int] = set()
"""Numbers of objects that the test found to be instances of named classes."""
answered: set[int] = set()
"""Numbers of objects that the program returned: a method may return its own object instead of plain data."""
meant: set[tuple[type, str]] = set()
"""Operations that the test has used on objects that it made."""
methods: dict[int, list[tuple[Any, str]]] = {}
"""Object number -> the owners and names by which the test got it as an attribute."""
plain_names: set[str] = set()
pythons_isinstance = isinstance


def refuse(value: Any, what: str = "which is not compared") -> Any:
    """Fail the test for using an object of the program in a way that would let the program decide."""
    raise ForeignError(f"gave an object of its own type {type(value).__name__}, {what}")


def guard(receiver: Any, name: str, args: list[Any]) -> None:
    """Reject passing data of the test to an object where plain data is possible: it may be the expected result."""
    has_data = not all(type(each) in facts for each in args)
    if has_data and not _is_meant(receiver, name) and name in _plain_names():
        refuse(receiver, f"whose {name} may not get data of the test, which neither made it nor checked its type")


def guard_call(function: Any, args: list[Any]) -> None:
    """Reject the same for a call of what the test got as an attribute."""
    for owner, name in methods.get(number_of(function), ()):
        guard(owner, name, args)


def _is_meant(receiver: Any, name: str) -> bool:
    """Return whether the test means this object: it made or checked it, or used the same operation on one it made."""
    if is_class(receiver):
        return receiver in named
    number, kinds = number_of(receiver), type.__getattribute__(type(receiver), "__mro__")
    if number in checked or (number in made and number not in answered):
        meant.update((each, name) for each in kinds)
        return True
    return any((each, name) in meant for each in named.intersection(kinds))


def is_instance(value: Any, kind: Any) -> bool:
    """Call Python's `isinstance` and record which objects of the program the test has checked."""
    is_one = pythons_isinstance(value, kind)
    if is_one and type(value) in facts and named.intersection(kind if type(kind) is tuple else (kind,)):
        checked.add(number_of(value))
    return is_one


def is_answer(subject: Any) -> bool:
    """Return whether an object, or the owner of a method, came as an answer and so may be forged by the program."""
    number = number_of(subject)
    if number is None:
        return False
    if owners := methods.get(number):
        return any(is_answer(owner) for owner, _ in owners)
    return subject not in named if is_class(subject) else number not in made or number in answered


def _plain_names() -> set[str]:
    """Return the names of all attributes and operators of plain data."""
    if not plain_names:
        kinds = [*PLAIN - {type}, KEYS, *map(from_library, LIBRARY)]
        plain_names.update(*map(dir, kinds), SPECIAL)
        plain_names.discard("__call__")
    return plain_names

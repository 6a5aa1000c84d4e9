"""References to objects and classes of the program: what a stand-in stands for, and how a question names it."""

from __future__ import annotations

import sys

from agentrl_code.inside.arguments import is_tests_own
from agentrl_code.inside.errors import TestError, UnsentError
from agentrl_code.values import LIBRARY, TYPES, UnplainError, to_tree

TYPE_CHECKING = False  # typing is not loaded inside, nor anything that can be avoided
if TYPE_CHECKING:
    from typing import Any

FUNCTION = type(lambda: None)
PLAIN = {*TYPES.values(), bytearray, range, type, object}


class ClassReference(type):
    """Base of the stand-ins for classes."""


class Reference:
    """Base of the stand-ins for objects. Its slots are read by their descriptors: every name is the program's."""

    __slots__ = ("_is_true", "_target")


class Facts:
    """Facts about a class of the program: its reference, the form of its instances, and how they compare."""

    def __init__(self, target: list[Any], form: str, known: type | None, is_by_identity: bool) -> None:
        self.target, self.form, self.known, self.is_by_identity = target, form, known, is_by_identity


FORMS = ("error", "named")
"""Forms whose stand-ins derive from an exception or a tuple, and keep their reference in `__dict__`."""
facts: dict[type, Facts] = {}
coroutines: dict[int, tuple[Any, list[Any]]] = {}
target_of, truth = Reference.__dict__["_target"], Reference.__dict__["_is_true"]


def is_class(value: object) -> bool:
    """Return whether a value stands for a class of the program."""
    return issubclass(type(value), ClassReference)


def is_function(value: object) -> bool:
    """Return whether a value stands for a plain function of the program."""
    return type(value) in facts and facts[type(value)].known is FUNCTION


def compares_by_identity(value: object) -> bool:
    """Return whether a value stands for an object whose class compares by identity."""
    return type(value) in facts and facts[type(value)].is_by_identity


def number_of(value: Any) -> Any:
    """Return the number of an object or class of the program; None if it is known by name or is plain data."""
    target = target_to_send(value) if type(value) in facts or is_class(value) else ["name"]
    return None if target[0] == "name" else target[1]


def target_to_send(value: Any, depth: int = 0) -> list[Any]:
    """Return the reference to an object of the program. Of other non-plain data, a test may pass only slices."""
    kind = type(value)
    if kind is slice:
        return ["slice", *[to_tree(part, target_to_send, depth + 1) for part in (value.start, value.stop, value.step)]]
    if is_class(value):
        return facts[value].target
    if kind in facts:
        found: list[Any] = value.__dict__["__target__"] if facts[kind].form in FORMS else target_of.__get__(value)
        return found
    if id(value) in coroutines:
        return coroutines[id(value)][1]
    if kind.__module__ in sys.modules and kind.__module__ in LIBRARY.values():
        raise UnplainError(f"an object of type {kind.__name__}")  # perhaps computed from an answer
    message = f"the test passes the program an object of type {kind.__name__}, which cannot be sent"
    raise (TestError if is_tests_own(value) else UnsentError)(message)

"""Arguments that a test passes to the program: which may change in place, and which the test itself made."""

from __future__ import annotations

import builtins
import sys
from _collections_abc import MutableMapping, MutableSequence, MutableSet

from agentrl_code.values import ON_HEAP

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from typing import Any

FILE, SETUP_FILE = "<test>", "<setup>"


def is_in_place() -> bool:
    """Return whether the calling line of the test may change its own arguments."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    lines = frame.f_globals.get("__in_place__", ())
    return frame.f_lineno in lines if isinstance(lines, list) else bool(lines)


def is_changeable(value: object) -> bool:
    """Return whether a value is a list, dict or set."""
    return isinstance(value, MutableSequence | MutableMapping | MutableSet)


def replace(old: Any, new: Any) -> None:
    """Give a list, dict or set the content that the program left in its copy."""
    if type(old) is not type(new) or not is_changeable(old):
        return
    old.clear()
    if isinstance(old, MutableSequence):
        old.extend(new)
    else:
        old.update(new)


def is_tests_own(value: Any) -> bool:
    """Return whether the test's code made a value, as opposed to a part of an answer such as `b.values()`."""
    kind = type(value)
    is_of_own_class = kind.__module__ == "builtins" and bool(kind.__flags__ & ON_HEAP)  # a test's module has no name
    if vars(builtins).get(kind.__name__) is kind and not issubclass(kind, BaseException):
        return True  # the test itself wrote `map(…)`, whatever it maps
    code = [getattr(value, name, None) for name in ("__code__", "gi_code", "cr_code", "ag_code")]
    return is_of_own_class or any(getattr(each, "co_filename", "") in (FILE, SETUP_FILE) for each in code)

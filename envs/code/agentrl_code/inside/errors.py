"""Errors of the judge, and Python's own errors by name."""

from __future__ import annotations

import builtins
import sys

_ENDS = ("StopIteration", "StopAsyncIteration")
refusals: list[str] = []
"""Operations of the test that would have let the program decide, whether or not the test caught the error."""


class ForeignError(BaseException):
    """The test used an object of the program in a way that would let the program decide. Catching it does not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        refusals.append(message)


class TestError(BaseException):
    """The test does something that no program can support."""


class UnsentError(BaseException):
    """The test passed data that cannot be sent; the data may come from the program."""


class ProgramError(Exception):
    """The program raised an error that Python does not know by name."""


def error_named(name: str, is_end: bool = False) -> type[BaseException] | None:
    """Return Python's exception of this name, or that of a module which the test has loaded, such as json.

    `is_end` allows StopIteration. Errors of unittest are excluded: its SkipTest would spare the program.
    """
    module, _, name = name.rpartition(".")
    root = module.partition(".")[0]
    if root and (root == "unittest" or root not in sys.stdlib_module_names):
        return None
    known = vars(sys.modules.get(module or "builtins", builtins)).get(name)
    is_fit = isinstance(known, type) and (issubclass(known, Exception) or known is SystemExit)
    return known if is_fit and (is_end or name not in _ENDS) else None

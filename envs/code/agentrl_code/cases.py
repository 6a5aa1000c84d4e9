"""The three kinds of test, and the checks whether they are usable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from agentrl_code.policy import PRINTED_BYTES
from agentrl_code.scripts import asserts, parse
from agentrl_code.values import UnplainError, to_tree

MISSING: Final = type("Missing", (), {"__repr__": lambda _: "MISSING", "__reduce__": lambda _: "MISSING"})()
"""Marks a missing expectation, since None is one. Copies and pickles are identical."""


@dataclass(frozen=True)
class Call:
    """`function(*args, **kwargs)` must return `expected` with exact types: 1 is not True or 1.0, a list is not a tuple.

    If there is a `checker(args, got, expected)`, it decides instead; only True passes. It is sent by cloudpickle to
    a separate process, which is killed if it takes too long.
    """

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = MISSING
    checker: Callable[[Sequence[Any], Any, Any], bool] | None = None


@dataclass(frozen=True)
class Io:
    """The program, run as a script with `stdin`, must print `expected_stdout` (white space at line ends is ignored).

    If there is a `checker(stdin, stdout, expected_stdout)`, it decides instead; only True passes.
    """

    stdin: str
    expected_stdout: str = ""
    checker: Callable[[str, str, str], bool] | None = None


@dataclass(frozen=True)
class Assert:
    """Test code whose asserts must all hold, with Python's own `==`; it reaches the program only through calls.

    A bare call as a statement, such as `sort(xs)`, may change the test's own arguments; with `in_place` every call may.
    """

    source: str
    in_place: bool = False


Test = Call | Io | Assert


def why_unusable(tests: Sequence[Test], setup: str = "") -> str:
    """Return why these tests cannot grade a program; '' if they can."""
    if fault := _syntax_fault(setup):
        return f"the setup {fault}"
    if not tests:
        return "there are no tests"
    for number, test in enumerate(tests, 1):
        if reason := _fault(test):
            return f"test {number} {reason}"
    if all(isinstance(test, Call) and test.expected is None and not test.checker for test in tests):
        return "every test expects None, which a function that does nothing returns"
    return ""


def _fault(test: Test) -> str:
    if isinstance(test, Io):
        return _io_fault(test)
    if isinstance(test, Assert):
        return _assert_fault(test.source)
    if test.expected is MISSING and not test.checker:
        return "expects nothing: set `expected`"
    try:
        to_tree([list(test.args), dict(test.kwargs), None if test.checker else test.expected])
    except UnplainError as problem:
        return f"contains a value that is not plain data: {problem}"
    return ""


def _io_fault(test: Io) -> str:
    try:
        test.stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "has an input that is not Unicode text"
    if len(test.expected_stdout.encode("utf-8", "replace")) > PRINTED_BYTES:
        return f"expects more output than the {PRINTED_BYTES} bytes that are read"
    return "expects no output" if not test.expected_stdout.strip() and not test.checker else ""


@lru_cache(maxsize=4096)
def _assert_fault(source: str) -> str:
    if fault := _syntax_fault(source):
        return fault
    return "" if asserts(parse(source)) else "asserts nothing"


@lru_cache(maxsize=4096)
def _syntax_fault(source: str) -> str:
    try:
        parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        return f"is not Python: {problem}"
    return ""

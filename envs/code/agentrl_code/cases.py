"""The three kinds of test, and what makes one unusable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from agentrl_code.policy import PRINTED_BYTES
from agentrl_code.scripts import asserts, parse
from agentrl_code.values import UnplainError, to_tree

MISSING: Final = type("Missing", (), {"__repr__": lambda _: "MISSING", "__reduce__": lambda _: "MISSING"})()
"""No expectation was given; None is one. Copies and pickles are the same one."""


@dataclass(frozen=True)
class Call:
    """`function(*args, **kwargs)` must give `expected`, with exact types: 1 is not True, not 1.0; a list is no tuple.

    `checker(args, got, expected)`, where given, decides instead; only True passes. It runs in a process of its own, to
    which it is sent by cloudpickle, and which is killed when it takes too long.
    """

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = MISSING
    checker: Callable[[Sequence[Any], Any, Any], bool] | None = None


@dataclass(frozen=True)
class Io:
    """The program, run as a script with `stdin`, must print `expected_stdout` (white space at line ends is ignored).

    `checker(stdin, stdout, expected_stdout)`, where given, decides instead; only True passes.
    """

    stdin: str
    expected_stdout: str = ""
    checker: Callable[[str, str, str], bool] | None = None


@dataclass(frozen=True)
class Assert:
    """Test code whose every `assert` must hold, with Python's own `==`; it meets the program only through its calls.

    A bare call as a statement, such as `sort(xs)`, changes the test's own arguments; with `in_place` every call does.
    """

    source: str
    in_place: bool = False


Test = Call | Io | Assert


def why_unusable(tests: Sequence[Test], setup: str = "") -> str:
    """Why nothing can be learnt from these tests; '' when something can."""
    if fault := _syntax_fault(setup):
        return f"the setup {fault}"
    if not tests:
        return "there are no tests"
    for number, test in enumerate(tests, 1):
        if reason := _fault(test):
            return f"test {number} {reason}"
    if all(isinstance(test, Call) and test.expected is None and not test.checker for test in tests):
        return "every test expects None, which a function that does nothing gives"
    return ""


def _fault(test: Test) -> str:
    if isinstance(test, Io):
        return _io_fault(test)
    if isinstance(test, Assert):
        return _assert_fault(test.source)
    if test.expected is MISSING and not test.checker:
        return "expects nothing: give `expected`"
    try:
        to_tree([list(test.args), dict(test.kwargs), None if test.checker else test.expected])
    except UnplainError as problem:
        return f"holds what is no plain data: {problem}"
    return ""


def _io_fault(test: Io) -> str:
    try:
        test.stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "has an input that is no Unicode text"
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

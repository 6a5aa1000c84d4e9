"""Checkers of tasks with several right answers: asked about what a program gave, and not believed when they raise."""

from collections.abc import Callable
from typing import Any

from agentrl_code.cases import MISSING
from agentrl_code.replies import ForeignError
from agentrl_code.verdict import Result, Status

Checker = Callable[..., Any]


class CheckerError(Exception):
    """A checker raised. It is the answer's doing where the checker takes what is expected, else the task's."""

    def __init__(self, problem: Exception, is_answers_doing: bool) -> None:
        super().__init__(f"{type(problem).__name__}: {problem}")
        self._is_answers_doing = is_answers_doing

    def result(self, asked: str, got: str) -> Result:
        """The result of the test."""
        if self._is_answers_doing:
            return Result(Status.FAILED, asked, got, reason=f"gave {got}, which the checker cannot take ({self})")
        return Result(Status.INVALID, asked, got, reason=f"the checker raised {self}", fault="task")


def is_approved(checker: Checker, given: Any, got: Any, expected: Any) -> bool:
    """Whether the checker says True, nothing less; CheckerError when it raises."""
    said = _asked(checker, given, got, expected)
    if isinstance(said, ForeignError):
        raise said
    if isinstance(said, Exception):  # without an expectation there is nothing right to try
        takes_right = expected is MISSING or not isinstance(_asked(checker, given, expected, expected), Exception)
        raise CheckerError(said, is_answers_doing=takes_right) from said
    return said is True


def _asked(checker: Checker, given: Any, got: Any, expected: Any) -> Any:
    """What the checker says, or what it raised."""
    try:
        return checker(given, got, expected)
    except Exception as problem:  # noqa: BLE001  (code of the task, on an answer of the program)
        return problem

"""Checkers of tasks with several right answers: asked about what a program gave, and not believed when they raise."""

from collections.abc import Callable
from typing import Any

from agentrl_code.cases import MISSING
from agentrl_code.replies import ForeignError
from agentrl_code.verdict import Result, Status


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


def is_approved(checker: Callable[..., Any], given: Any, got: Any, expected: Any) -> bool:
    """Whether the checker says True, nothing less; CheckerError when it raises."""
    try:
        return checker(given, got, expected) is True
    except ForeignError:
        raise
    except Exception as problem:
        raise CheckerError(problem, is_answers_doing=_takes(checker, given, expected)) from problem


def _takes(checker: Callable[..., Any], given: Any, expected: Any) -> bool:
    if expected is MISSING:
        return True  # nothing that is right is known to try
    try:
        checker(given, expected, expected)
    except Exception:  # noqa: BLE001
        return False
    return True

"""Checkers of tasks with several right answers: asked about what a program gave, and not believed when they raise."""

import copy
from collections.abc import Callable
from typing import Any

from agentrl.env.threads import Threads
from agentrl.errors import DeadlineError, EnvError
from agentrl_code.cases import MISSING
from agentrl_code.replies import ForeignError
from agentrl_code.show import shown
from agentrl_code.verdict import Result, Status

Checker = Callable[..., Any]


class CheckerError(Exception):
    """A checker raised or hung. It is the answer's doing where the checker takes what is expected, else the task's."""

    def __init__(self, problem: BaseException, is_answers_doing: bool) -> None:
        super().__init__(f"{type(problem).__name__}: {_words(problem)}")
        self._is_answers_doing = is_answers_doing

    def result(self, asked: str, got: str) -> Result:
        """The result of the test."""
        if self._is_answers_doing:
            return Result(Status.FAILED, asked, got, reason=f"gave {got}, which the checker cannot take ({self})")
        return Result(Status.INVALID, asked, got, reason=f"the checker raised {self}", fault="task")


class HungError(Exception):
    """Too many calls of checkers hang, each in a thread that cannot be ended: no more are made."""


async def is_approved(
    checker: Checker, given: Any, got: Any, expected: Any, timeout_s: float, threads: Threads
) -> bool:
    """Whether the checker says True within its time, nothing less; CheckerError when it raises or hangs.

    HungError once too many have hung: a checker must bound what it does with an answer.
    """
    said = await _asked(checker, given, got, expected, timeout_s, threads)
    if isinstance(said, ForeignError):
        raise said
    if isinstance(said, BaseException):  # without an expectation there is nothing right to try
        takes_right = expected is MISSING or not isinstance(
            await _asked(checker, given, expected, expected, timeout_s, threads), BaseException
        )
        raise CheckerError(said, is_answers_doing=takes_right) from said
    return said is True


async def _asked(checker: Checker, given: Any, got: Any, expected: Any, timeout_s: float, threads: Threads) -> Any:
    """What the checker says, or what it raised; in a thread, for nobody knows how long it takes.

    It is given copies: one that sorts or empties what it is given must not spoil the test for the next program.
    """

    def ask() -> Any:
        try:
            return checker(_copied(given), got, expected if expected is MISSING else _copied(expected))
        except BaseException as problem:  # noqa: BLE001  (code of the task, on an answer of the program)
            return problem

    try:
        return await threads.run(ask, timeout_s, "the checker")
    except DeadlineError as problem:
        return problem
    except EnvError as problem:
        raise HungError(str(problem)) from problem


def _copied(value: Any) -> Any:
    """A copy; the value itself where it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except (copy.Error, TypeError, ValueError, AttributeError, RuntimeError):
        return value


def _words(problem: BaseException) -> str:
    """What it says; not by its `str`, which is a `repr` of what it was raised with: perhaps the answer."""
    return ", ".join(arg if isinstance(arg, str) else shown(arg) for arg in problem.args)

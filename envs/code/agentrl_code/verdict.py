"""What a grading says."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

MOST_REASON = 2000
Fault = Literal["", "program", "task", "infra"]
"""Whose doing it is that there is no point: the program's, its tests', or the machinery's; '' when there is one."""


class Status(StrEnum):
    """The four outcomes; each equals its plain string."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Result:
    """How one test went: `asked` is its input as text, `got` and `wanted` what came out and what was expected."""

    status: Status
    asked: str = ""
    got: str = ""
    wanted: str = ""
    reason: str = ""
    fault: Fault = ""
    """Of an invalid one: what the program answered, or its task."""

    @property
    def text(self) -> str:
        """The result in one sentence, the expectation included: for tests that the model may see."""
        if self.status is Status.PASSED:
            return f"{self.asked} passed."
        said = self.reason or f"gave {self.got}" + (f", but {self.wanted} was expected" if self.wanted else "")
        return printable(f"{self.asked}: {said}." if self.asked else f"{said}.")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One graded program: `passed` when every test passed, `failed` when one did not, `error` when the program broke.

    `invalid` is never a point: no usable tests, an unreadable answer, or a sandbox that failed. `fault` tells which:
    who scores programs gives 0 where it is "program", and drops the sample where it is "task" or "infra".
    """

    status: Status
    reason: str = ""
    results: tuple[Result, ...] = ()
    fault: Fault = ""

    @classmethod
    def of(cls, results: tuple[Result, ...]) -> "Verdict":
        """Return the verdict of finished tests: the worst result, and its reason."""
        worst = min(results, key=_rank)
        if worst.status is Status.PASSED:
            return cls(Status.PASSED, "", results)
        return cls(worst.status, worst.text, results, worst.fault or "program")

    @classmethod
    def invalid(cls, reason: str, fault: Fault) -> "Verdict":
        """Return a verdict without a result, why, and whose doing that is."""
        return cls(Status.INVALID, printable(reason), (), fault)

    @property
    def valid(self) -> bool:
        """Whether every test came to a result."""
        return self.status is not Status.INVALID

    @property
    def reward(self) -> float | None:
        """1.0 when every test passed, 0.0 for any other valid verdict, None for an invalid one."""
        return float(self.status is Status.PASSED) if self.valid else None

    @property
    def share(self) -> float | None:
        """The share of tests that passed; None for an invalid verdict."""
        if not self.valid or not self.results:
            return None
        return sum(result.status is Status.PASSED for result in self.results) / len(self.results)

    @property
    def feedback(self) -> str:
        """The first test that did not pass, in one sentence; '' when all passed. It tells what was expected."""
        return next((result.text for result in self.results if result.status is not Status.PASSED), self.reason)


def printable(text: str) -> str:
    """Return a text that any tokenizer and any file takes, and no longer than a reader reads."""
    return text[:MOST_REASON].encode("utf-8", "backslashreplace").decode()


def _rank(result: Result) -> int:
    """Return the lower, the worse; a task that cannot be graded goes before whatever the program did with it."""
    if result.fault == "task":
        return 0
    return 1 + (Status.INVALID, Status.ERROR, Status.FAILED, Status.PASSED).index(result.status)

"""Results of tests and verdicts on programs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

MOST_REASON = 2000
Fault = Literal["", "program", "task", "infra"]
"""Who is at fault for a missing point: the program, its tests or the infrastructure; '' if the program passed."""


class Status(StrEnum):
    """The four outcomes; each equals its plain string."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one test: `asked` is its input as text, `got` the result and `wanted` the expectation."""

    status: Status
    asked: str = ""
    got: str = ""
    wanted: str = ""
    reason: str = ""
    fault: Fault = ""
    """Who is at fault for an invalid result: the program's answers or its task."""

    @property
    def text(self) -> str:
        """The result in one sentence, including the expectation: only for tests that the model may see."""
        if self.status is Status.PASSED:
            return f"{self.asked} passed."
        text = self.reason or f"gave {self.got}" + (f", but {self.wanted} was expected" if self.wanted else "")
        return printable(f"{self.asked}: {text}." if self.asked else f"{text}.")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One graded program: `passed` if every test passed, `failed` if one did not, `error` if the program crashed.

    `invalid` means no usable tests, an unreadable answer or a failed sandbox. `fault` says which: the reward is 0 for
    "program", and the sample is dropped for "task" and "infra".
    """

    status: Status
    reason: str = ""
    results: tuple[Result, ...] = ()
    fault: Fault = ""

    @classmethod
    def of(cls, results: tuple[Result, ...]) -> "Verdict":
        """Return the verdict of finished tests: the worst result and its reason."""
        worst = min(results, key=_rank)
        if worst.status is Status.PASSED:
            return cls(Status.PASSED, "", results)
        return cls(worst.status, worst.text, results, worst.fault or "program")

    @classmethod
    def invalid(cls, reason: str, fault: Fault) -> "Verdict":
        """Return a verdict without results, with a reason and who is at fault."""
        return cls(Status.INVALID, printable(reason), (), fault)

    @property
    def valid(self) -> bool:
        """Whether every test has a result."""
        return self.status is not Status.INVALID

    @property
    def reward(self) -> float | None:
        """1.0 if every test passed, 0.0 for other valid verdicts, None for an invalid one."""
        return float(self.status is Status.PASSED) if self.valid else None

    @property
    def share(self) -> float | None:
        """The share of tests that passed; None for an invalid verdict."""
        if not self.valid or not self.results:
            return None
        return sum(result.status is Status.PASSED for result in self.results) / len(self.results)

    @property
    def feedback(self) -> str:
        """The first test that did not pass, in one sentence with its expectation; '' if all passed."""
        return next((result.text for result in self.results if result.status is not Status.PASSED), self.reason)


def printable(text: str) -> str:
    """Return text that is valid in any tokenizer and file, truncated to MOST_REASON."""
    return text[:MOST_REASON].encode("utf-8", "backslashreplace").decode()


def _rank(result: Result) -> int:
    """Return the rank of a result, worst first; a task that cannot be graded precedes anything that the program did."""
    if result.fault == "task":
        return 0
    return 1 + (Status.INVALID, Status.ERROR, Status.FAILED, Status.PASSED).index(result.status)

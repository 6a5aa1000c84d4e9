"""What a grading says."""

from dataclasses import dataclass
from enum import StrEnum


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

    @property
    def text(self) -> str:
        """The result in one sentence, the expectation included: for tests that the model may see."""
        if self.status is Status.PASSED:
            return f"{self.asked} passed."
        said = self.reason or f"gave {self.got}" + (f", but {self.wanted} was expected" if self.wanted else "")
        return f"{self.asked}: {said}." if self.asked else f"{said}."


@dataclass(frozen=True, slots=True)
class Verdict:
    """One graded program: `passed` when every test passed, `failed` when one did not, `error` when the program broke.

    `invalid` says nothing about the program: no usable tests, an unreadable answer, or a sandbox that failed.
    """

    status: Status
    reason: str = ""
    results: tuple[Result, ...] = ()

    @classmethod
    def of(cls, results: tuple[Result, ...]) -> "Verdict":
        """The verdict of finished tests: the worst result, and its reason."""
        for status in (Status.INVALID, Status.ERROR, Status.FAILED):
            if worst := next((result for result in results if result.status is status), None):
                return cls(status, worst.text, results)
        return cls(Status.PASSED, "", results)

    @classmethod
    def invalid(cls, reason: str) -> "Verdict":
        """A verdict that says nothing about the program, and why."""
        return cls(Status.INVALID, reason)

    @property
    def valid(self) -> bool:
        """Whether this says something about the program."""
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

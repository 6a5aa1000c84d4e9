"""Verdicts of the verifier."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The five outcomes; each equals its plain string."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    NO_ANSWER = "no_answer"
    GOLD_INVALID = "gold_invalid"
    VERIFIER_FAILED = "verifier_failed"


@dataclass(frozen=True)
class Verdict:
    """One graded response: its status, the reason, and the text that was taken as its answer."""

    status: Status
    reason: str = ""
    extracted: str | None = None

    @property
    def valid(self) -> bool:
        """Whether this is about the response rather than about the gold or the verifier."""
        return self.status not in (Status.GOLD_INVALID, Status.VERIFIER_FAILED)

    @property
    def reward(self) -> float | None:
        """1.0 for a correct answer, 0.0 for any other valid verdict, None for an invalid one."""
        if not self.valid:
            return None
        return 1.0 if self.status is Status.CORRECT else 0.0

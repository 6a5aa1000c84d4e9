"""Settings of the grading, and the clock of one grading."""

import time
from dataclasses import dataclass, replace

from agentrl_sandbox import Limits

WALL_PER_CPU = 3
STARTING_S = 0.5
"""Wall-clock overhead of a run on a busy machine."""
PRINTED_BYTES = 4 << 20
ANSWERED_BYTES = 32 << 20
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a grading, shared by all of its tests."""

    entry: str = ""
    """The requested function. Needed only if tests call it by another name, or if it has the name of a builtin."""
    setup: str = ""
    """Trusted code that the tests need, such as helper functions; it never reaches the program."""
    timeout_s: float = 6.0
    """CPU seconds for all function tests together, and for each stdin test; wall clock three times as much."""
    float_tolerance: float = 0.0
    """Tolerance of `Call` and `Io`, relative or absolute; 0: exact. An `Assert` states its own."""
    wait_s: float = 600.0
    """Give up if no sandbox at all becomes free for this long; a moving queue may take longer."""
    checker_s: float = 10.0
    """Time limit of one call of a checker."""

    total_s: float = 300.0
    """Wall clock for all tests of a program together; tests that are not reached are errors of the program."""

    def __post_init__(self) -> None:
        if not (min(self.timeout_s, self.wait_s, self.checker_s, self.total_s) > 0 and 0 <= self.float_tolerance < 1):
            raise ValueError(f"times must be above 0 and float_tolerance between 0 and 1: {self}")

    def within(self, left_s: float) -> "Policy":
        """Return this policy with at most `left_s` in total."""
        return replace(self, total_s=min(self.total_s, left_s), checker_s=min(self.checker_s, left_s))

    @property
    def limits(self) -> Limits:
        """The limits of one run of a script."""
        return Limits(
            wall_s=min(WALL_PER_CPU * self.timeout_s, self.total_s), cpu_s=self.timeout_s, output_bytes=PRINTED_BYTES
        )

    @property
    def answering(self) -> Limits:
        """The limits of all function tests together."""
        return replace(self.limits, output_bytes=ANSWERED_BYTES)


class Clock:
    """Wall clock of all tests of a program, started now, and the time that the program may be idle in them."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.until = policy, time.monotonic() + policy.total_s
        self._idle_s = 0.0

    @property
    def policy(self) -> Policy | None:
        """The policy within the remaining time; None if no time is left."""
        left_s = self.until - time.monotonic()
        is_idle = self._idle_s >= WALL_PER_CPU * self._policy.timeout_s
        return self._policy.within(left_s) if left_s > 0 and not is_idle else None

    def charge(self, wall_s: float, cpu_s: float) -> None:
        """Count the idle time of one run: a program that computes may use more wall clock than one that sleeps."""
        self._idle_s += max(0.0, wall_s - STARTING_S - WALL_PER_CPU * cpu_s)

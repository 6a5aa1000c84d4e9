"""All checks, level by level, in the order in which they run."""

from __future__ import annotations

from agentrl.checking import behaviour, contract, learnability, package, truth
from agentrl.checking.check import Check, Level

CHECKS: tuple[Check, ...] = (
    *contract.CHECKS,
    *truth.CHECKS,
    *behaviour.CHECKS,
    *package.CHECKS,
    *learnability.CHECKS,
)


def checks_of(levels: frozenset[Level]) -> tuple[Check, ...]:
    """Return the checks of these levels."""
    return tuple(check for check in CHECKS if check.level in levels)

"""Why a sample cannot be trained, and the commonest of many causes."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.types import Trajectory

MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a sample: it has no reward (`invalid`), or no token to credit one to (`unanswered`)."""

    outcome: Literal["invalid", "unanswered"]
    reason: str


def fault_of(trajectory: Trajectory) -> Fault | None:
    """The fault of a sample; None where it can be trained."""
    if trajectory.is_unanswered:
        return Fault("unanswered", trajectory.error or f"{trajectory.stop_reason}: no token was sampled")
    return None if trajectory.is_trainable else Fault("invalid", invalid_reason(trajectory))


def invalid_reason(trajectory: Trajectory) -> str:
    """Why a sample has no reward: its stop reason, and the error or the first invalid signal."""
    if trajectory.error:
        return f"{trajectory.stop_reason}: {trajectory.error}"
    for signal in trajectory.signals:
        if not signal.valid and signal.weight != 0:
            return f"{signal.name}: {signal.reason}"
    return str(trajectory.stop_reason) if trajectory.signals else f"{trajectory.stop_reason}: no signal"


def commonest(faults: Sequence[Fault]) -> str:
    """The commonest cause, with what to do; prompts that are too long are one cause, whatever their lengths."""
    causes = [fault.reason if fault.outcome == "invalid" else fault.outcome for fault in faults]
    cause, count = collections.Counter(causes).most_common(1)[0]
    first = faults[causes.index(cause)]
    advice = ". Shorten the prompts, or raise --model.max_context" if first.outcome == "unanswered" else ""
    return f"The commonest cause, {count} of {len(faults)}: {' '.join(first.reason.split())[:MOST_CHARACTERS]}{advice}"

"""Faults: why a sample cannot be trained, the most common of many causes, and when a run must stop because of them."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.errors import RunError
from agentrl.types import StopReason, Trajectory

REASON_CHARACTERS = 300
UNANSWERED_BATCHES = 8  # so many samples without an answer are the fault of the tasks, and more do not help


@dataclass(frozen=True, slots=True)
class SampleFault:
    """The fault of a sample: it has no reward (`invalid`), or no token that could earn one (`unanswered`)."""

    outcome: Literal["invalid", "unanswered"]
    reason: str
    remedy: str = ""


def fault_of(trajectory: Trajectory) -> SampleFault | None:
    """Return the fault of a sample, or None if it can be trained."""
    if trajectory.is_unanswered:
        reason = trajectory.error or f"{trajectory.stop_reason}: no token was sampled"
        return SampleFault("unanswered", reason, "Shorten the prompts, or raise --model.max_context")
    if trajectory.is_trainable:
        return None
    is_late = trajectory.stop_reason is StopReason.DEADLINE
    return SampleFault("invalid", invalid_reason(trajectory), "Raise --rollout.episode_timeout_s" if is_late else "")


def invalid_reason(trajectory: Trajectory) -> str:
    """Return why a sample has no reward: its stop reason and error, or its first signal that does not count."""
    if trajectory.error:
        return f"{trajectory.stop_reason}: {trajectory.error}"
    for signal in trajectory.signals:
        if not signal.valid and signal.weight != 0:
            return f"{signal.name}: {signal.reason}"
    if lost := trajectory.uncredited:
        who = f"the agent {lost.agent!r}" if lost.agent else "the policy"
        limit = f" up to turn {lost.turn}" if lost.scope == "turn" else ""
        return f"{lost.name}: {who} sampled no token{limit} that can earn this reward"
    return str(trajectory.stop_reason) if trajectory.signals else f"{trajectory.stop_reason}: no signal"


def most_common(faults: Sequence[SampleFault]) -> str:
    """Return a sentence on the most common cause, with a remedy. All unanswered samples count as one cause."""
    causes = [fault.reason if fault.outcome == "invalid" else fault.outcome for fault in faults]
    cause, count = collections.Counter(causes).most_common(1)[0]
    first = faults[causes.index(cause)]
    reason = " ".join(first.reason.split())[:REASON_CHARACTERS]
    return ". ".join(filter(None, [f"The most common cause, {count} of {len(faults)}: {reason}", first.remedy]))


class FaultMonitor:
    """Decides whether a run can go on, from the samples that come back.

    It must stop if more than a share of `max_invalid` of the last `samples` (one batch) is invalid, or if
    UNANSWERED_BATCHES batches in a row are unanswered. `of` names the environment if there are several.
    """

    def __init__(self, samples: int, max_invalid: float, of: str = "") -> None:
        self._samples, self._max_invalid, self._of = samples, max_invalid, of
        self._window: collections.deque[SampleFault | None] = collections.deque(maxlen=samples)
        self._unanswered: list[SampleFault] = []  # since the last sample with an answer

    def note(self, trajectory: Trajectory) -> None:
        """Take a sample into account."""
        fault = fault_of(trajectory)
        if fault is not None and fault.outcome == "unanswered":
            self._unanswered.append(fault)
            return
        self._unanswered.clear()
        self._window.append(fault)

    def check(self) -> None:
        """Raise RunError with the most common cause if the run must stop."""
        unanswered = len(self._unanswered)
        if unanswered >= UNANSWERED_BATCHES * self._samples:
            raise RunError(
                f"the last {unanswered} samples{self._of} are all unanswered. {most_common(self._unanswered)}"
            )
        invalid = [fault for fault in self._window if fault]
        if len(self._window) == self._samples and len(invalid) > self._max_invalid * self._samples:
            raise RunError(
                f"{len(invalid)} of the last {self._samples} samples{self._of} are invalid (rollout.max_invalid = "
                f"{self._max_invalid:g}). {most_common(invalid)}"
            )

"""What a step came to: the batch and the learner's reports as one StepRecord."""

from __future__ import annotations

import collections
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentrl.metrics.step import PhaseSeconds, StepRecord, signal_means, tool_use
from agentrl.types import Batch, StepReport, Version


@dataclass(frozen=True, slots=True)
class Learned:
    """What the learner made of a batch: each rank's report, and how many groups had a signal."""

    reports: tuple[StepReport, ...]
    groups_with_signal: int


def account(step: int, version: Version, batch: Batch, learned: Learned, seconds: PhaseSeconds) -> StepRecord:
    """The record of `step`; `version` is what learner and engines hold after it."""
    trajectories = [t for group in batch.groups for t in group.trajectories]
    rewards = [t.reward for t in trajectories]
    lengths = [t.action_tokens for t in trajectories]
    outcomes = collections.Counter(outcome for outcome, _, _ in batch.dropped)
    ages = collections.Counter(batch.ages)
    return StepRecord(
        step=step,
        version=str(version),
        at=time.time(),
        reward_mean=statistics.fmean(rewards),
        reward_std=statistics.pstdev(rewards),
        trained=len(trajectories),
        learner=whole(learned.reports),
        seconds=seconds,
        filtered=outcomes["filtered"],
        stale=outcomes["stale"],
        invalid=outcomes["invalid"],
        unanswered=outcomes["unanswered"],
        lost=outcomes["lost"],
        groups=len(batch.groups),
        groups_mixed=learned.groups_with_signal,
        prompt_tokens=sum(len(s.ids) for t in trajectories for s in t.segments if not s.is_action),
        action_tokens=sum(lengths),
        dropped_tokens=sum(tokens for _, _, tokens in batch.dropped),
        restored_tokens=batch.restored_tokens,
        entropy=-math.fsum(value for t in trajectories for s in t.segments for value in s.logprobs) / sum(lengths),
        length_mean=statistics.fmean(lengths),
        length_max=max(lengths),
        turns_mean=statistics.fmean(t.turns for t in trajectories),
        truncated=sum(not t.stop_reason.is_terminal for t in trajectories),
        staleness=tuple(ages[age] for age in range(max(ages, default=0) + 1)),
        mid_updates=sum(len({v.version for s in t.segments for v in s.versions}) > 1 for t in trajectories),
        signals=signal_means(trajectories),
        tool_calls_mean=statistics.fmean(len(t.tool_results) for t in trajectories),
        tool_use=tool_use(trajectories),
        samples=tuple(t.sample for t in trajectories),
    )


def whole(reports: Sequence[StepReport]) -> StepReport:
    """The ranks' reports as one: samples and tokens added up, the slowest rank's seconds."""
    return replace(
        reports[0],
        tokens=sum(report.tokens for report in reports),
        samples=tuple(sample for report in reports for sample in report.samples),
        seconds=max(report.seconds for report in reports),
    )

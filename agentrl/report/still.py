"""Steps that moved no weight, told so that nobody overlooks them, and why."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.metrics.step import StepRecord

PAGE = "docs/when-it-does-not-learn.md"
UNSTABLE = "no update: the gradient was not finite"


def why_still(step: StepRecord) -> str:
    """Why a step moved no weight, '' when it did."""
    if step.learner.has_learned:
        return ""
    if step.learner.nonfinite_steps:
        return UNSTABLE
    if step.reward_std == 0:
        return f"no update: every reward is {step.reward_mean:.3g}, so there is nothing to compare"
    return "no update: the rewards differ in no group, so there is nothing to compare"


def still_words(steps: Sequence[StepRecord]) -> str:
    """How many steps moved no weight, their commonest reason, and where to read on; '' when all did."""
    reasons = [reason for reason in map(why_still, steps) if reason]
    if not reasons:
        return ""
    commonest = max(dict.fromkeys(reasons), key=reasons.count).removeprefix("no update: ")
    return f"{len(reasons)} of {len(steps)} steps: {commonest}; see {PAGE}"

"""Outcomes of groups: how often a task was solved when it was last visited, and what that says about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

SetAside = Literal["never solved", "always solved", "verifier fails", "never scored"]
"""Why a task is set aside."""
VISITS = 4
"""The latest visits of a task that count: the policy changes, so older ones say little."""
EVIDENCE = 16
"""Samples after which a task counts as never or always solved; a task solved once in eight passes for it once in
eight times."""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """Outcome of a training group: its `samples` with a reward, how many solve the task, and how many are `invalid`.

    A sample is invalid if its verifier fails. One that ends without a reward for another reason, such as a deadline or
    a prompt that leaves no room, counts nowhere. The curriculum considers the outcome from `step` on.
    If all pass or all fail, but with different rewards, these compare them as well as a half that is solved:
    `solved` is then half of the samples.
    """

    group: int
    env: str
    task_index: int
    task_id: str
    samples: int
    solved: float
    invalid: int
    step: int


def by_task(outcomes: Iterable[GroupOutcome]) -> dict[tuple[str, int], list[GroupOutcome]]:
    """Return the outcomes of each task (environment and index), the latest visits only, in the order of groups."""
    found: dict[tuple[str, int], list[GroupOutcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.group):
        found.setdefault((outcome.env, outcome.task_index), []).append(outcome)
    return {task: visits[-VISITS:] for task, visits in found.items()}


def set_aside(visits: Sequence[GroupOutcome]) -> SetAside | None:
    """Return why a task with these latest visits is set aside, None if it is not."""
    samples, solved = sum(v.samples for v in visits), sum(v.solved for v in visits)
    if len(visits) >= 2 and not samples:
        return "verifier fails" if any(v.invalid for v in visits) else "never scored"
    if samples < EVIDENCE:
        return None
    return "never solved" if solved == 0 else "always solved" if solved == samples else None


def solve_rate(visits: Sequence[GroupOutcome]) -> float:
    """Return the share of samples that solved the task; nan if none has a reward."""
    samples = sum(v.samples for v in visits)
    return sum(v.solved for v in visits) / samples if samples else float("nan")

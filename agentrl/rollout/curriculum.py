"""The curriculum: how often a task is visited, by its solve rate."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentrl.env.rewards import passes
from agentrl.rollout.task_order import stable_hash
from agentrl.types import GroupTask, StopReason, Trajectory
from agentrl.types.outcomes import VISITS, GroupOutcome, set_aside

LEAST = 1 / 8
"""The chance of a task that is set aside: it is tried again, because the policy learns."""
HASHES = 1 << 63


class Curriculum:
    """Decides which tasks an epoch visits, from the outcomes of the groups up to `step`.

    A task is visited with the chance max(1/8, 4 p (1 - p)), where p is its solve rate in the latest visits: the
    learnability p (1 - p) of Rutherford et al. (arXiv:2408.15099), scaled to at most 1. p has a uniform prior, and a
    task that was never visited is visited in any case. One that is set aside has the least chance.
    """

    def __init__(self, seed: int, outcomes: Iterable[GroupOutcome] = (), step: int = 0) -> None:
        self.step, self._seed = step, seed
        self._visits: dict[tuple[str, int], dict[int, GroupOutcome]] = collections.defaultdict(dict)
        for outcome in outcomes:
            self.observe(outcome)

    def observe(self, outcome: GroupOutcome) -> GroupOutcome:
        """Take the outcome of a group into account from its step on, or from that of an earlier outcome; returns it.

        A resume closes groups again that closed before.
        """
        visits = self._visits[outcome.env, outcome.task_index]
        if earlier := visits.get(outcome.group):
            outcome = replace(outcome, step=earlier.step)
        visits[outcome.group] = outcome
        return outcome

    def is_visited(self, task: GroupTask) -> bool:
        """Return whether the epoch of `task` visits it: the same for the same seed and outcomes."""
        visits = self._latest(task.env, task.index)
        drawn = stable_hash(self._seed, "curriculum", task.env, task.epoch, task.index)
        return not visits or drawn < chance(visits) * HASHES

    def set_aside(self) -> dict[str, int]:
        """Return how many tasks are set aside, by reason."""
        reasons = (set_aside(self._latest(*task)) for task in self._visits)
        return dict(collections.Counter(str(reason) for reason in reasons if reason))

    def _latest(self, env: str, index: int) -> list[GroupOutcome]:
        visits = self._visits.get((env, index), {})
        known = [group for group in sorted(visits) if visits[group].step <= self.step]
        return [visits[group] for group in known[-VISITS:]]


def chance(visits: Sequence[GroupOutcome]) -> float:
    """Return the chance that an epoch visits a task with these latest visits."""
    if set_aside(visits):
        return LEAST
    p = (sum(v.solved for v in visits) + 1) / (sum(v.samples for v in visits) + 2)
    return max(LEAST, 4 * p * (1 - p))


def outcome_of(group: int, task: GroupTask, members: Sequence[Trajectory], step: int) -> GroupOutcome | None:
    """Return the outcome of a group whose members came back, None if there are none."""
    if not members:
        return None
    valid = [t for t in members if t.is_trainable]
    solved = float(sum(passes(t.signals) for t in valid))
    if solved in (0, len(valid)) and len({t.reward for t in valid}) > 1:
        solved = len(valid) / 2
    name = members[0].task_id.encode("utf-8", "backslashreplace").decode()
    invalid = sum(map(_is_unverified, members))
    return GroupOutcome(group, task.env, task.index, name, len(valid), solved, invalid, step)


def _is_unverified(trajectory: Trajectory) -> bool:
    """Return whether an episode was to be scored, and its verifier failed."""
    is_done = trajectory.stop_reason.is_scored or trajectory.stop_reason is StopReason.VERIFIER_ERROR
    return is_done and not trajectory.is_unanswered and not trajectory.is_trainable

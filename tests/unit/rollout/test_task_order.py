"""The sampler divides groups by weight, keeps the order of each environment, and continues where a run ended."""

from __future__ import annotations

from collections import Counter

import pytest

from agentrl.rollout.task_order import EnvPlan, TaskSampler
from agentrl.types import EpisodeSettings, GroupTask

EPISODE = EpisodeSettings(1.0, 8, 0, 10.0, 10.0)


def plans(**weights: float) -> tuple[EnvPlan, ...]:
    """Environments with these weights and 7 tasks each; the one called `endless` has no end."""
    return tuple(
        EnvPlan(label, EPISODE, 0, weight=weight, tasks=None if label == "endless" else 7)
        for label, weight in weights.items()
    )


def drawn(sampler: TaskSampler, groups: int) -> list[GroupTask]:
    return [sampler.next() for _ in range(groups)]


def test_groups_are_divided_by_weight_at_every_moment() -> None:
    tasks = drawn(TaskSampler(3, plans(math=5, guess=2, code=1)), 400)
    for end in range(1, 401):
        counts = Counter(task.env for task in tasks[:end])
        assert all(abs(counts[env] - end * weight / 8) <= 1 for env, weight in (("math", 5), ("guess", 2), ("code", 1)))


def test_an_environment_has_the_same_tasks_beside_others_as_alone() -> None:
    alone = drawn(TaskSampler(3, plans(guess=1)), 20)
    beside = [task for task in drawn(TaskSampler(3, plans(math=2, guess=1, endless=1)), 80) if task.env == "guess"]
    assert beside == alone


@pytest.mark.parametrize("done", [0, 1, 6, 7, 30, 59])
def test_a_resumed_sampler_continues_the_same_order(done: int) -> None:
    of = plans(math=3, endless=1.5, guess=1)
    whole = drawn(TaskSampler(3, of), 60)
    assert drawn(TaskSampler(3, of, whole[:done]), 60 - done) == whole[done:]


def test_every_epoch_has_each_task_once() -> None:
    tasks = drawn(TaskSampler(3, plans(guess=1)), 21)
    for epoch in range(3):
        assert sorted(task.index for task in tasks if task.epoch == epoch) == list(range(7))

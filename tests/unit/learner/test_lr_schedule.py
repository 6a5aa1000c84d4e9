from __future__ import annotations

import pytest

from agentrl.config.schema import LearnerSection
from agentrl.learner.lr_schedule import learning_rate


def rates(total: int = 11, **fields: object) -> list[float]:
    section = LearnerSection.model_validate({"lr": 1.0, "min_lr_ratio": 0.2, **fields})
    return [learning_rate(section, update, total) for update in range(total * section.updates)]


def test_the_warm_up_climbs_linearly_to_the_peak():
    assert rates(warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize("updates", [{"updates_per_batch": 2}, {"epochs": 2}])
def test_the_warm_up_counts_steps_not_updates(updates: dict[str, int]):
    assert rates(warmup_steps=2, **updates)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_decay_starts_at_the_peak_passes_the_middle_and_ends_at_its_minimum(schedule: str):
    values = rates(schedule=schedule)
    assert values[0] == 1.0
    assert values[5] == pytest.approx(0.6)
    assert values[-1] == pytest.approx(0.2)
    assert values == sorted(values, reverse=True)


def test_the_decay_begins_after_the_warm_up_and_stays_at_its_minimum_beyond_the_end():
    section = LearnerSection(lr=1.0, min_lr_ratio=0.2, schedule="linear", warmup_steps=3)
    assert learning_rate(section, 3, 9) == 1.0
    assert learning_rate(section, 100, 9) == pytest.approx(0.2)

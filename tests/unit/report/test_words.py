"""A run says which of its steps changed no weight, and why: in the line of the step, at its end and in its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.metrics.step import StepRecord
from agentrl.metrics.trackers import read_steps
from agentrl.report import curves, summary
from agentrl.report.html import write_report
from agentrl.report.words import PAGE, no_update_words, role_words, step_words, why_no_update
from agentrl.types import RoleUse
from tests.unit.records.synthetic import synthetic_run
from tests.unit.report.test_summary import printed

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> StepRecord:
    return read_steps(synthetic_run(tmp_path_factory.mktemp("run"), steps=2))[-1]


def still(step: StepRecord, *, mean: float = 0.0, spread: float = 0.0, nonfinite: int = 0) -> StepRecord:
    learner = replace(step.learner, optimizer_steps=0, skipped_steps=1, nonfinite_steps=nonfinite)
    return replace(step, learner=learner, reward_mean=mean, reward_std=spread)


def test_a_step_without_an_update_says_why(moved: StepRecord) -> None:
    assert why_no_update(moved) == ""
    assert "no update: every reward is 0, so there is nothing to compare" in step_words(still(moved), 9)
    assert "no update: every reward is 0.5" in step_words(still(moved, mean=0.5), 9)
    assert "no update: all rewards of each group are equal" in step_words(still(moved, mean=0.5, spread=0.5), 9)
    assert "no update: the gradient was not finite" in step_words(still(moved, nonfinite=1), 9)
    alone = replace(still(moved).learner, skipped_steps=0, meters={"value_loss": 0.5})
    assert "no update: the critic learns alone" in step_words(replace(moved, learner=alone), 9)


def test_several_sequences_per_episode_are_told(moved: StepRecord) -> None:
    assert ", 3.0 sequences · entropy" in step_words(replace(moved, sequences_mean=3.0), 9)
    assert "sequences" not in step_words(moved, 9)


def test_what_is_asked_of_roles_is_told(moved: StepRecord) -> None:
    uses = {"judge": RoleUse(12, 4, 1, 3000, 400), "user": RoleUse(1)}
    assert [role_words(use) for use in uses.values()] == [
        "12 calls, 4 from the cache, 1 unusable, 3,400 tokens", "1 call, 0 tokens",
    ]  # fmt: skip
    small = curves.learning([moved, replace(moved, step=3, roles=uses)], []).small
    [judge] = [card for card in small if card.title == "Role judge"]
    assert (
        judge.note == "Of the trained samples of a step. 12 calls, 4 from the cache, 1 unusable, 3,400 tokens in all."
    )


def test_the_steps_without_an_update_are_counted_by_their_most_common_reason(moved: StepRecord) -> None:
    assert no_update_words([moved, moved]) == ""
    steps = [moved, still(moved, mean=1.0), still(moved), still(moved)]
    assert no_update_words(steps) == f"3 of 4 steps: every reward is 0, so there is nothing to compare; see {PAGE}"
    assert (ROOT / PAGE).is_file()


def test_a_run_without_an_update_says_so_at_its_end_and_in_its_report(tmp_path: Path, moved: StepRecord) -> None:
    run = synthetic_run(tmp_path, steps=2)
    result = summary.read(run)
    assert result is not None
    assert result.no_update == ""
    assert "no update" not in printed(result, run)
    assert "No update" not in write_report(run).read_text()
    steps = [still(step) for step in read_steps(run)]
    one = summary.summarize("done", result.seconds, {}, steps, [], result.counts, result.conservation, 1, {})
    assert "2 of 2 steps: every reward is 0" in printed(one, run)
    text = run.metrics.read_text()
    run.metrics.write_text(text.replace('"optimizer_steps":1', '"optimizer_steps":0'))
    page = write_report(run).read_text()
    assert "No update" in page
    assert "2 of 2 steps" in page

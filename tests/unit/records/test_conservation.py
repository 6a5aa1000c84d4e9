"""The conservation law is seen to fail for every way in which a sample can be lost, doubled or unaccounted for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentrl.config.schema import Config
from agentrl.metrics.step import Learned, PhaseSeconds, StepRecord, step_record
from agentrl.metrics.trackers import Metrics, read_steps
from agentrl.records.audit import AuditLog, RankReport, read_audit
from agentrl.records.conservation import ConservationResult, check, is_living
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.ledger import Ledger, State
from agentrl.types import AttemptId, Batch, Group, SampleId, Version
from tests.unit.records.synthetic import learner_report, request, trajectory

SAMPLES = [SampleId(g, m) for g in range(4) for m in range(2)]


@dataclass
class Records:
    """A small honest run: two steps of two ranks, one stale, one lost and rerun, one invalid."""

    ledger: Ledger
    dispatched: list[AttemptId]
    stored: list[AttemptId]
    trained: list[RankReport]
    steps: list[StepRecord]

    def verdict(self) -> ConservationResult:
        return check(self.ledger, self.dispatched, self.stored, self.trained, self.steps)


def record_of(step: int, *samples: SampleId) -> StepRecord:
    report = learner_report(step, random.Random(0))
    return StepRecord(step, f"0.{step}", 0.0, 0.5, 0.5, len(samples), report, PhaseSeconds(), samples=samples)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.begin_incarnation()
    ledger.dispatched([request(sample) for sample in SAMPLES])
    ledger.settle([(SAMPLES[7], 0)], State.LOST, "its worker died")
    ledger.dispatched([request(SAMPLES[7], attempt=1)])
    ledger.finished([trajectory(*sample) for sample in SAMPLES[:7]] + [trajectory(*SAMPLES[7], 1)])
    ledger.trained(SAMPLES[:2], 1)
    ledger.trained(SAMPLES[2:4], 2)
    ledger.settle([(SAMPLES[4], 0)], State.STALE, "old")
    ledger.settle([(SAMPLES[5], 0)], State.INVALID, "no verdict")
    stored = [(sample, 0) for sample in SAMPLES[:7]] + [(SAMPLES[7], 1)]
    dispatched = [(sample, 0) for sample in SAMPLES] + [(SAMPLES[7], 1)]
    trained = [RankReport(0, 1 + i // 2, i % 2, (SAMPLES[i],)) for i in range(4)]
    yield Records(ledger, dispatched, stored, trained, [record_of(1, *SAMPLES[:2]), record_of(2, *SAMPLES[2:4])])
    ledger.close()


def test_an_honest_run_keeps_the_law(records: Records) -> None:
    assert records.verdict() == ConservationResult(())
    assert str(records.verdict()) == "holds"


def test_a_dropped_sample_is_seen(records: Records) -> None:
    records.ledger._db.execute("DELETE FROM attempts WHERE grp = 2 AND member = 1")
    assert set(records.verdict().violations) == {
        "sample 2-1, attempt 0: dispatched, not in the ledger",
        "sample 2-1, attempt 0: stored, not in the ledger",
    }


def test_a_doubled_training_is_seen(records: Records) -> None:
    records.trained.append(RankReport(0, 2, 1, (SAMPLES[0],)))
    assert records.verdict().violations == (
        "sample 0-0: trained 2 times, in steps [1, 2]",
        "sample 0-0: trained in step 2 by its rank, not in the step's record",
    )


def test_two_ranks_training_one_sample_in_one_step_are_seen(records: Records) -> None:
    records.trained.append(RankReport(0, 1, 1, (SAMPLES[0],)))
    assert records.verdict().violations == ("sample 0-0: trained 2 times, in steps [1, 1]",)


def test_a_finished_sample_that_is_not_stored_is_seen(records: Records) -> None:
    records.stored.remove((SAMPLES[6], 0))
    assert records.verdict().violations == ("sample 3-0, attempt 0: finished in the ledger, not stored",)


def test_a_sample_that_no_rank_trained_is_seen(records: Records) -> None:
    del records.trained[2]
    assert records.verdict().violations == (
        "sample 1-0: trained in step 2 in the ledger, by no rank",
        "sample 1-0: trained in step 2 in the step's record, by no rank",
    )


def test_a_sample_that_a_rank_left_out_and_the_ledger_never_heard_of_is_seen(records: Records) -> None:
    records.steps[1] = record_of(2, *SAMPLES[2:4], SAMPLES[6])
    assert {row.state for row in records.ledger.rows() if row.sample == SAMPLES[6]} == {State.FINISHED}
    assert records.verdict().violations == ("sample 3-0: trained in step 2 in the step's record, by no rank",)


def test_a_step_that_counts_more_than_its_ranks_is_seen_though_it_names_none(records: Records) -> None:
    records.steps[1] = replace(record_of(2), trained=3)
    assert records.verdict().violations == ("step 2: its record counts 3 trained samples, the ranks 2",)
    records.steps[1] = replace(record_of(2), trained=2)
    assert records.verdict().holds


def test_a_step_that_hides_a_training_is_seen(records: Records) -> None:
    records.steps[0] = record_of(1, SAMPLES[0])
    assert records.verdict().violations == ("sample 0-1: trained in step 1 by its rank, not in the step's record",)


def test_a_step_without_a_record_is_seen_unless_the_run_ended_in_it(records: Records) -> None:
    del records.steps[1]
    assert records.verdict().holds
    del records.steps[0]
    assert records.verdict().violations == ("step 1: the ranks trained 2 samples, it has no record",)


def test_a_rank_that_trained_what_the_ledger_does_not_know_is_seen(records: Records) -> None:
    records.trained.append(RankReport(0, 2, 0, (SAMPLES[4],)))
    assert records.verdict().violations == (
        "sample 2-0: trained by a rank, not in the ledger",
        "sample 2-0: trained in step 2 by its rank, not in the step's record",
    )


def test_a_training_in_another_step_is_seen(records: Records) -> None:
    records.trained[0] = RankReport(0, 2, 0, (SAMPLES[0],))
    assert records.verdict().violations == (
        "sample 0-0: trained in step 2 by its rank, in step 1 in the ledger",
        "sample 0-0: trained in step 1 in the step's record, by no rank",
        "sample 0-0: trained in step 2 by its rank, not in the step's record",
    )


def test_an_attempt_that_was_never_dispatched_is_seen(records: Records) -> None:
    records.dispatched.remove((SAMPLES[0], 0))
    assert records.verdict().violations == ("sample 0-0, attempt 0: trained in the ledger, never dispatched",)


def test_doubles_of_the_scheduler_and_of_the_store_are_seen(records: Records) -> None:
    records.dispatched.append((SAMPLES[0], 0))
    records.stored.append((SAMPLES[1], 0))
    assert records.verdict().violations == (
        "sample 0-0, attempt 0: dispatched 2 times",
        "sample 0-1, attempt 0: stored 2 times",
    )


def test_what_is_still_in_flight_is_no_end(records: Records) -> None:
    records.ledger.dispatched([request(SampleId(9, 0))])
    records.dispatched.append((SampleId(9, 0), 0))
    assert records.verdict().violations == ("sample 9-0, attempt 0: still in flight",)


def test_a_kill_between_two_records_is_no_violation(records: Records) -> None:
    records.ledger.dispatched([request(SampleId(9, 0)), request(SampleId(9, 1))])
    records.dispatched.append((SampleId(9, 1), 0))
    records.stored.append((SampleId(9, 1), 0))
    records.ledger.begin_incarnation(2)
    assert records.verdict().holds


def test_the_law_holds_through_a_resume(records: Records) -> None:
    records.ledger.begin_incarnation(1)
    assert records.verdict().holds
    records.ledger.trained(SAMPLES[3:4], 2)
    records.steps.append(replace(record_of(2, SAMPLES[3]), version="1.2"))
    assert records.verdict().violations == (
        "sample 1-1: trained in step 2 in the ledger, by no rank",
        "sample 1-1: trained in step 2 in the step's record, by no rank",
    )
    records.trained.append(RankReport(1, 2, 0, (SAMPLES[3],)))
    assert records.verdict().holds


@pytest.mark.parametrize("left_out", [0, 1])
def test_a_rank_that_leaves_out_a_sample_breaks_the_law_of_its_run(tmp_path: Path, left_out: int) -> None:
    folder = RunFolder(tmp_path)
    journal, metrics = RunJournal(folder), Metrics(folder, Config.model_validate({"track": {"tensorboard": False}}))
    journal.ledger.begin_incarnation()
    journal.dispatched([request(SampleId(0, member)) for member in range(4)])
    members = tuple(trajectory(0, member) for member in range(4))
    for member in members:
        journal.finished(member)
    ranks = [[members[0].sample, members[2].sample], [members[1].sample, members[3].sample][left_out:]]
    journal.trained(Version(0, 0), 1, ranks)
    reports = [learner_report(1, random.Random(0), tuple(samples)) for samples in ranks]
    metrics.step(
        step_record(
            1, Version(0, 1), Batch((Group(0, members),), (), (0,) * 4), Learned(tuple(reports), 1), PhaseSeconds()
        )
    )
    violations = ("sample 0-1: trained in step 1 in the step's record, by no rank",)
    assert journal.verdict(read_steps(folder)).violations == violations * left_out
    metrics.close()
    journal.close()


def test_a_baseline_whose_group_was_not_trained_is_seen(records: Records) -> None:
    for sample, step in ((SampleId(1, 2), 2), (SampleId(3, 2), 2)):
        records.ledger.dispatched([request(sample)])
        records.ledger.finished([trajectory(*sample)])
        records.ledger.trained([], step, baselines=[sample])
        records.dispatched.append((sample, 0))
        records.stored.append((sample, 0))
    assert records.verdict().violations == ("sample 3-2: the baseline of step 2, in which its group was not trained",)
    records.stored.remove((SampleId(1, 2), 0))
    assert "sample 1-2, attempt 0: baseline in the ledger, not stored" in records.verdict().violations


def test_a_resume_that_ends_before_it_does_a_step_again_keeps_the_law(records: Records) -> None:
    records.ledger.begin_incarnation(1)
    assert [record.step for record in records.steps] == [1, 2]
    assert records.verdict().holds


def test_reports_of_undone_steps_do_not_count() -> None:
    steps = [(i, step) for i in range(3) for step in range(1, 6)]
    assert [(i, step) for i, step in steps if is_living(step, i, (0, 4, 2))] == [
        (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5),
    ]  # fmt: skip


def test_an_audit_log_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    writer = AuditLog(path)
    writer.dispatched([(SAMPLES[0], 0), (SAMPLES[1], 2)])
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"type":"trained","incarn')
    writer = AuditLog(path)
    writer.trained(RankReport(1, 3, 0, (SAMPLES[0],)))
    writer.close()
    audit = read_audit(path)
    assert audit.dispatched == ((SAMPLES[0], 0), (SAMPLES[1], 2))
    assert audit.trained == (RankReport(1, 3, 0, (SAMPLES[0],)),)

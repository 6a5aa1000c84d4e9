"""The conservation law: no sample is lost, trained twice or unaccounted for. Five independent records must agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentrl.records.audit import RankReport
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.types import AttemptId, SampleId, Version

# States whose trajectory must be in the store: everything that an attempt can become after it finished.
STORED = frozenset({State.FINISHED, State.TRAINED, State.BASELINE, State.FILTERED, State.STALE, State.INVALID})
# States in which a record may be missing: the attempt ended between two records.
TORN = frozenset({State.LOST, State.CANCELLED})


class TrainedStep(Protocol):
    """What a step's record (`agentrl.metrics.step.StepRecord`) says of its training."""

    @property
    def step(self) -> int:
        """The number of the step."""

    @property
    def version(self) -> str:
        """The version after the step."""

    @property
    def trained(self) -> int:
        """The number of trained samples."""

    @property
    def samples(self) -> Sequence[SampleId]:
        """The trained samples; empty if the record does not name them."""


@dataclass(frozen=True, slots=True)
class ConservationResult:
    """Whether the law holds; every violation names the sample and the two records that disagree."""

    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when no violation was found."""
        return not self.violations

    def __str__(self) -> str:
        return "holds" if self.holds else f"BROKEN: {len(self.violations)} violations, first: {self.violations[0]}"


def check(
    ledger: Ledger,
    dispatched: Iterable[AttemptId],
    stored: Iterable[AttemptId],
    trained: Iterable[RankReport],
    steps: Iterable[TrainedStep],
) -> ConservationResult:
    """Compare the ledger of a run at rest with what was dispatched, what is stored, what each rank reports to have
    trained, and the records of its steps.
    """
    forks = ledger.forks()
    reports = [report for report in trained if is_living(report.step, report.incarnation, forks)]
    records = [record for record in steps if is_living(record.step, Version.parse(record.version).incarnation, forks)]
    rows = list(ledger.rows())
    states = {(row.sample, row.attempt): row.state for row in rows}
    found = [
        *(f"{_name(a)}: still in flight" for a, state in states.items() if state is State.IN_FLIGHT),
        *_dispatches(states, list(dispatched)),
        *_stores(states, list(stored)),
        *_trainings({row.sample: row.step for row in rows if row.step and row.state is State.TRAINED}, reports),
        *_baselines([row for row in rows if row.state is State.BASELINE], reports),
        *_records({record.step: record for record in records}, reports),
    ]
    return ConservationResult(tuple(found))


def is_living(step: int, incarnation: int, forks: Sequence[int]) -> bool:
    """Return whether a step is in the present lineage: a later incarnation that began at step s undid all after s."""
    return step <= min(forks[incarnation + 1 :], default=step)


def _dispatches(states: dict[AttemptId, State], dispatched: list[AttemptId]) -> list[str]:
    sent = Counter(dispatched)
    twice = [f"{_name(a)}: dispatched {n} times" for a, n in sent.items() if n > 1]
    unknown = [f"{_name(a)}: dispatched, not in the ledger" for a in sent if a not in states]
    unsent = [a for a, state in states.items() if a not in sent and state not in TORN]
    return twice + unknown + [f"{_name(a)}: {states[a]} in the ledger, never dispatched" for a in unsent]


def _stores(states: dict[AttemptId, State], stored: list[AttemptId]) -> list[str]:
    kept = Counter(stored)
    twice = [f"{_name(a)}: stored {n} times" for a, n in kept.items() if n > 1]
    unknown = [f"{_name(a)}: stored, not in the ledger" for a in kept if a not in states]
    missing = [a for a, state in states.items() if state in STORED and a not in kept]
    return twice + unknown + [f"{_name(a)}: {states[a]} in the ledger, not stored" for a in missing]


def _trainings(steps: dict[SampleId, int], reports: list[RankReport]) -> list[str]:
    """Return the steps in which the ledger says that samples were trained, against the reports of the ranks."""
    reported: dict[SampleId, list[int]] = defaultdict(list)
    for report in reports:
        for sample in report.samples:
            reported[sample].append(report.step)
    twice = [f"sample {s}: trained {len(at)} times, in steps {at}" for s, at in reported.items() if len(at) > 1]
    unknown = [f"sample {s}: trained by a rank, not in the ledger" for s in reported if s not in steps]
    unreported = [
        f"sample {s}: trained in step {step} in the ledger, by no rank"
        for s, step in steps.items()
        if s not in reported
    ]
    moved = [
        f"sample {s}: trained in step {at[0]} by its rank, in step {steps[s]} in the ledger"
        for s, at in reported.items()
        if s in steps and at[0] != steps[s]
    ]
    return twice + unknown + unreported + moved


def _baselines(rows: list[AttemptRow], reports: list[RankReport]) -> list[str]:
    """Return the baselines in whose step no rank trained a member of their group."""
    trained = {(report.step, sample.group) for report in reports for sample in report.samples}
    return [
        f"sample {row.sample}: the baseline of step {row.step}, in which its group was not trained"
        for row in rows
        if (row.step, row.group) not in trained
    ]


def _records(records: dict[int, TrainedStep], reports: list[RankReport]) -> list[str]:
    """Return the records of the steps against the reports of the ranks."""
    trained: dict[int, set[SampleId]] = defaultdict(set)
    last: dict[int, int] = defaultdict(int)
    for report in reports:
        trained[report.step].update(report.samples)
        last[report.incarnation] = max(last[report.incarnation], report.step)
    missing = sorted(trained.keys() - records.keys() - set(last.values()))  # a run may end between update and record
    unrecorded = [f"step {step}: the ranks trained {len(trained[step])} samples, it has no record" for step in missing]
    found = (_record(record, trained[step]) for step, record in sorted(records.items()))
    return unrecorded + [violation for violations in found for violation in violations]


def _record(record: TrainedStep, trained: set[SampleId]) -> list[str]:
    step, named = record.step, set(record.samples)
    if not named:
        miscounted = f"step {step}: its record counts {record.trained} trained samples, the ranks {len(trained)}"
        return [miscounted] if record.trained != len(trained) else []
    lost = [f"sample {s}: trained in step {step} in the step's record, by no rank" for s in sorted(named - trained)]
    hidden = [
        f"sample {s}: trained in step {step} by its rank, not in the step's record" for s in sorted(trained - named)
    ]
    return lost + hidden


def _name(attempt: AttemptId) -> str:
    return f"sample {attempt[0]}, attempt {attempt[1]}"

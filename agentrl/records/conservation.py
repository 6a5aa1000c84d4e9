"""The conservation law: no sample is dropped, trained twice or untold. Five independent records must agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentrl.metrics.step import StepRecord
from agentrl.records.audit import RankReport
from agentrl.records.ledger import Attempt, Ledger, State
from agentrl.types import SampleId, Version

# States in which the trajectory must be in the store: everything an attempt can become after it finished.
STORED = frozenset({State.FINISHED, State.TRAINED, State.FILTERED, State.STALE, State.INVALID})
# States in which a record may be missing: the attempt's end came between two records.
TORN = frozenset({State.LOST, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class ConservationResult:
    """Whether the law holds; every violation says which sample and which two records disagree."""

    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when no violation was found."""
        return not self.violations

    def __str__(self) -> str:
        return "holds" if self.holds else f"BROKEN: {len(self.violations)} violations, first: {self.violations[0]}"


def check(
    ledger: Ledger,
    dispatched: Iterable[Attempt],
    stored: Iterable[Attempt],
    trained: Iterable[RankReport],
    told: Iterable[StepRecord],
) -> ConservationResult:
    """Compare the ledger, at rest, with what was dispatched, what is stored, what each rank says it trained, and what
    the records of the steps tell.
    """
    forks = ledger.forks()
    reports = [report for report in trained if is_living(report.step, report.incarnation, forks)]
    records = [record for record in told if is_living(record.step, Version.parse(record.version).incarnation, forks)]
    states = {(row.sample, row.attempt): row.state for row in ledger.rows()}
    steps = {row.sample: row.step for row in ledger.rows() if row.step is not None}
    found = [
        *(f"{_name(a)}: still in flight" for a, state in states.items() if state is State.IN_FLIGHT),
        *_dispatches(states, list(dispatched)),
        *_stores(states, list(stored)),
        *_trainings(steps, reports),
        *_records({record.step: record for record in records}, reports),
    ]
    return ConservationResult(tuple(found))


def is_living(step: int, incarnation: int, forks: Sequence[int]) -> bool:
    """Whether a step belongs to the present lineage: a later incarnation that began at step s undid all after s."""
    return step <= min(forks[incarnation + 1 :], default=step)


def _dispatches(states: dict[Attempt, State], dispatched: list[Attempt]) -> list[str]:
    sent = Counter(dispatched)
    twice = [f"{_name(a)}: dispatched {n} times" for a, n in sent.items() if n > 1]
    unknown = [f"{_name(a)}: dispatched, not in the ledger" for a in sent if a not in states]
    unsent = [a for a, state in states.items() if a not in sent and state not in TORN]
    return twice + unknown + [f"{_name(a)}: {states[a]} in the ledger, never dispatched" for a in unsent]


def _stores(states: dict[Attempt, State], stored: list[Attempt]) -> list[str]:
    kept = Counter(stored)
    twice = [f"{_name(a)}: stored {n} times" for a, n in kept.items() if n > 1]
    unknown = [f"{_name(a)}: stored, not in the ledger" for a in kept if a not in states]
    missing = [a for a, state in states.items() if state in STORED and a not in kept]
    return twice + unknown + [f"{_name(a)}: {states[a]} in the ledger, not stored" for a in missing]


def _trainings(steps: dict[SampleId, int], reports: list[RankReport]) -> list[str]:
    reported: dict[SampleId, list[int]] = defaultdict(list)
    for report in reports:
        for sample in report.samples:
            reported[sample].append(report.step)
    twice = [f"sample {s}: trained {len(at)} times, in steps {at}" for s, at in reported.items() if len(at) > 1]
    unknown = [f"sample {s}: a rank trained it, the ledger says not" for s in reported if s not in steps]
    untold = [
        f"sample {s}: trained in step {step} in the ledger, no rank says so"
        for s, step in steps.items()
        if s not in reported
    ]
    moved = [
        f"sample {s}: trained in step {at[0]} by its rank, in step {steps[s]} in the ledger"
        for s, at in reported.items()
        if s in steps and at[0] != steps[s]
    ]
    return twice + unknown + untold + moved


def _records(told: dict[int, StepRecord], reports: list[RankReport]) -> list[str]:
    """What each step's record says it trained, against the word of the ranks."""
    trained: dict[int, set[SampleId]] = defaultdict(set)
    last: dict[int, int] = defaultdict(int)
    for report in reports:
        trained[report.step].update(report.samples)
        last[report.incarnation] = max(last[report.incarnation], report.step)
    missing = sorted(trained.keys() - told.keys() - set(last.values()))  # a run may end between update and record
    untold = [f"step {step}: the ranks trained {len(trained[step])} samples, no record tells of it" for step in missing]
    found = (_record(record, trained[step]) for step, record in sorted(told.items()))
    return untold + [violation for violations in found for violation in violations]


def _record(record: StepRecord, trained: set[SampleId]) -> list[str]:
    step, named = record.step, set(record.samples)
    lost = [f"sample {s}: step {step} says it was trained, no rank says so" for s in sorted(named - trained)]
    hidden = [
        f"sample {s}: trained in step {step} by its rank, not in the step's record" for s in sorted(trained - named)
    ]
    miscounted = [f"step {step}: its record counts {record.trained} trained samples, the ranks {len(trained)}"]
    return lost + hidden if named else miscounted * (record.trained != len(trained))


def _name(attempt: Attempt) -> str:
    return f"sample {attempt[0]}, attempt {attempt[1]}"

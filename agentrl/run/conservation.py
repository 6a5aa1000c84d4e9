"""The conservation law: no sample is dropped, trained twice or untold. Four independent records must agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentrl.run.ledger import Attempt, Ledger, State
from agentrl.run.witness import RankReport
from agentrl.types import SampleId

# States in which the trajectory must be in the store: everything an attempt can become after it finished.
STORED = frozenset({State.FINISHED, State.TRAINED, State.FILTERED, State.STALE, State.INVALID})
# States in which a record may be missing: the attempt's end came between two records.
TORN = frozenset({State.LOST, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the law holds; every violation says which sample and which two records disagree."""

    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when no violation was found."""
        return not self.violations

    def __str__(self) -> str:
        return "holds" if self.holds else f"BROKEN: {len(self.violations)} violations, first: {self.violations[0]}"


def check(
    ledger: Ledger, dispatched: Iterable[Attempt], stored: Iterable[Attempt], trained: Iterable[RankReport]
) -> Verdict:
    """Compare the ledger, at rest, with what was dispatched, what is stored, and what each rank says it trained."""
    states = {(row.sample, row.attempt): row.state for row in ledger.rows()}
    steps = {row.sample: row.step for row in ledger.rows() if row.step is not None}
    found = [
        *(f"{_name(a)}: still in flight" for a, state in states.items() if state is State.IN_FLIGHT),
        *_dispatches(states, list(dispatched)),
        *_stores(states, list(stored)),
        *_trainings(steps, living(list(trained), ledger.forks())),
    ]
    return Verdict(tuple(found))


def living(reports: Sequence[RankReport], forks: Sequence[int]) -> list[RankReport]:
    """The reports of the present lineage: a later incarnation that began at step s undid all steps after s."""
    return [r for r in reports if r.step <= min(forks[r.incarnation + 1 :], default=r.step)]


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


def _name(attempt: Attempt) -> str:
    return f"sample {attempt[0]}, attempt {attempt[1]}"

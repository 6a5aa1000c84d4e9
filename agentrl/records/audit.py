"""Audit log: what the scheduler dispatched and what each learner rank trained, by their own account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentrl.records.jsonl import JsonLines, read_jsonl
from agentrl.types import AttemptId, SampleId


@dataclass(frozen=True, slots=True)
class RankReport:
    """The samples that a learner rank trained in a step."""

    incarnation: int
    step: int
    rank: int
    samples: tuple[SampleId, ...]


class _Dispatched(msgspec.Struct, tag="dispatched"):
    attempts: list[tuple[int, int, int]]


class _Trained(msgspec.Struct, tag="trained"):
    incarnation: int
    step: int
    rank: int
    samples: list[tuple[int, int]]


class AuditLog:
    """Appends to the file `path`. Write dispatches after the ledger and trainings before it.

    The ledger is compared with this log, so neither is derived from the other.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def dispatched(self, attempts: Iterable[AttemptId]) -> None:
        """Log the attempts that the scheduler sends to a worker."""
        self._lines.append(_Dispatched([(*sample, attempt) for sample, attempt in attempts]))

    def trained(self, report: RankReport) -> None:
        """Log the samples that a learner rank trained."""
        r = report
        self._lines.append(_Trained(r.incarnation, r.step, r.rank, [(s.group, s.member) for s in r.samples]))

    def sync(self) -> None:
        """Wait until everything logged is on the disk itself."""
        self._lines.sync()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


@dataclass(frozen=True, slots=True)
class Audit:
    """The content of an audit log, in order."""

    dispatched: tuple[AttemptId, ...]
    trained: tuple[RankReport, ...]


def read_audit(path: Path) -> Audit:
    """Read the audit log in the file `path`; empty if there is none."""
    lines = read_jsonl(path, _Dispatched | _Trained)  # type: ignore[arg-type]
    dispatched = [(SampleId(g, m), a) for line in lines if isinstance(line, _Dispatched) for g, m, a in line.attempts]
    reports = [
        RankReport(line.incarnation, line.step, line.rank, tuple(SampleId(*pair) for pair in line.samples))
        for line in lines
        if isinstance(line, _Trained)
    ]
    return Audit(tuple(dispatched), tuple(reports))

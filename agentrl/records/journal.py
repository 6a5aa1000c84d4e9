"""The records of a training run as one object: ledger, trajectory store and audit log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrl.records.audit import AuditLog, RankReport, read_audit
from agentrl.records.conservation import ConservationResult, TrainedStep, check
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import closing
from agentrl.records.ledger import Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.types import AttemptId, DropReason, EpisodeRequest, SampleId, Trajectory, Version
from agentrl.types.outcomes import GroupOutcome


class RunJournal:
    """Records what happens to every attempt. A trajectory is stored before the ledger calls its attempt finished."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._audit = AuditLog(folder.audit)  # first: a ledger without an audit log is of an earlier version
        self.ledger = Ledger(folder.ledger)
        self.store = TrajectoryStore(folder.trajectories)

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """Record attempts that are about to run."""
        requests = list(requests)
        self.ledger.dispatched(requests)
        self._audit.dispatched((request.sample, request.attempt) for request in requests)

    def finished(self, trajectory: Trajectory) -> None:
        """Record an attempt that came back."""
        self.store.append([trajectory])
        self.ledger.finished([trajectory])

    def settled(self, attempts: Iterable[AttemptId], outcome: DropReason, reason: str) -> None:
        """Record attempts that end untrained."""
        self.ledger.settle(attempts, State(outcome), reason)

    def observed(self, outcome: GroupOutcome) -> None:
        """Record the outcome of a group."""
        self.ledger.observed(outcome)

    def trained(
        self,
        version: Version,
        step: int,
        samples_by_rank: Sequence[Sequence[SampleId]],
        baselines: Iterable[SampleId] = (),
    ) -> None:
        """Record the samples that the ranks report as trained in `step`, after which they hold `version`.

        `baselines` were compared with them.
        """
        for rank, samples in enumerate(samples_by_rank):
            self._audit.trained(RankReport(version.incarnation, step, rank, tuple(samples)))
        self.ledger.trained({sample for samples in samples_by_rank for sample in samples}, step, version.n, baselines)

    def restored(self) -> tuple[list[Trajectory], dict[SampleId, int], set[SampleId]]:
        """Return the arguments of `Scheduler.restore`: finished samples, last attempts, unanswered samples."""
        waiting = [self.store.read(sample, attempt) for sample, attempt in self.ledger.waiting()]
        attempts = self.ledger.last_attempts()
        return waiting, attempts, self.ledger.unanswered() & attempts.keys()

    def verdict(self, steps: Iterable[TrainedStep]) -> ConservationResult:
        """Check the conservation law, with the records of the run's steps, when nothing is in flight."""
        audit = read_audit(self._folder.audit)
        return check(self.ledger, audit.dispatched, self.store.ids(), audit.trained, steps)

    def sync(self) -> None:
        """Wait until everything recorded is on the disk itself: for a checkpoint, not for every sample."""
        self.store.sync()
        self.ledger.sync()
        self._audit.sync()

    def close(self) -> None:
        """Close every file. Idempotent."""
        with closing(self.ledger), closing(self.store):
            self._audit.close()

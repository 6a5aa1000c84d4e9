"""Where the scheduler and the learner write down what becomes of every attempt: ledger, store and audit as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrl.metrics.trackers import read_steps
from agentrl.records.audit import AuditLog, RankReport, read_audit
from agentrl.records.conservation import ConservationResult, check
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger, LedgerCounts, State
from agentrl.records.store import TrajectoryStore
from agentrl.types import DropReason, EpisodeRequest, SampleId, Trajectory, Version


class RunJournal:
    """The records of one run. A trajectory is stored before the ledger calls its attempt finished."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.ledger = Ledger(folder.ledger)
        self.store = TrajectoryStore(folder.trajectories)
        self._audit = AuditLog(folder.audit)

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """These attempts are about to run."""
        requests = list(requests)
        self.ledger.dispatched(requests)
        self._audit.dispatched((request.sample, request.attempt) for request in requests)

    def finished(self, trajectory: Trajectory) -> None:
        """This attempt came back."""
        self.store.append([trajectory])
        self.ledger.finished([trajectory])

    def settled(self, attempts: Iterable[tuple[SampleId, int]], outcome: DropReason, reason: str) -> None:
        """These attempts end here, untrained."""
        self.ledger.settle(attempts, State(outcome), reason)

    def trained(self, version: Version, step: int, samples_by_rank: Sequence[Sequence[SampleId]]) -> None:
        """The ranks say that they trained these samples in `step`, and hold `version` after it."""
        for rank, samples in enumerate(samples_by_rank):
            self._audit.trained(RankReport(version.incarnation, step, rank, tuple(samples)))
        self.ledger.trained({sample for samples in samples_by_rank for sample in samples}, step, version.n)

    def restored(self) -> tuple[list[Trajectory], dict[SampleId, int], set[SampleId]]:
        """What `Scheduler.restore` takes: finished samples, the last attempts at their groups, and the unanswered."""
        waiting = [self.store.read(sample, attempt) for sample, attempt in self.ledger.waiting()]
        attempts = self.ledger.last_attempts()
        return waiting, attempts, self.ledger.unanswered() & attempts.keys()

    def verdict(self) -> ConservationResult:
        """Whether no sample was dropped, doubled or left untold; ask when nothing is in flight."""
        said = read_audit(self._folder.audit)
        return check(self.ledger, said.dispatched, self.store.ids(), said.trained, read_steps(self._folder))

    def counts(self) -> LedgerCounts:
        """The ledger's sums."""
        return self.ledger.counts()

    def close(self) -> None:
        """Close every file. Idempotent."""
        self._audit.close()
        self.store.close()
        self.ledger.close()

"""Where the scheduler and the learner write down what becomes of every attempt: ledger, store and witness as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrl.metrics.trackers import read_steps
from agentrl.records.audit import RankReport, Witness, testimony
from agentrl.records.conservation import Verdict, check
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Counts, Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.types import DropReason, EpisodeOrder, SampleId, Trajectory, Version


class RunJournal:
    """The records of one run. A trajectory is stored before the ledger calls its attempt finished."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.ledger = Ledger(folder.ledger)
        self.store = TrajectoryStore(folder.trajectories)
        self._witness = Witness(folder.witness)

    def dispatched(self, orders: Iterable[EpisodeOrder]) -> None:
        """These attempts are about to run."""
        orders = list(orders)
        self.ledger.dispatched(orders)
        self._witness.dispatched((order.sample, order.attempt) for order in orders)

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
            self._witness.trained(RankReport(version.incarnation, step, rank, tuple(samples)))
        self.ledger.trained({sample for samples in samples_by_rank for sample in samples}, step, version.n)

    def restored(self) -> tuple[list[Trajectory], dict[SampleId, int], set[SampleId]]:
        """What `Scheduler.restore` takes: finished samples, the last attempts at their groups, and the unanswered."""
        waiting = [self.store.read(sample, attempt) for sample, attempt in self.ledger.waiting()]
        attempts = self.ledger.last_attempts()
        return waiting, attempts, self.ledger.unanswered() & attempts.keys()

    def verdict(self) -> Verdict:
        """Whether no sample was dropped, doubled or left untold; ask when nothing is in flight."""
        said = testimony(self._folder.witness)
        return check(self.ledger, said.dispatched, self.store.ids(), said.trained, read_steps(self._folder))

    def counts(self) -> Counts:
        """The ledger's sums."""
        return self.ledger.counts()

    def close(self) -> None:
        """Close every file. Idempotent."""
        self._witness.close()
        self.store.close()
        self.ledger.close()

"""SQLite ledger of every training attempt; a resume continues from it without loss."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentrl.errors import RunError
from agentrl.types import AttemptId, EpisodeRequest, GroupTask, SampleId, Trajectory
from agentrl.types.outcomes import GroupOutcome


class State(StrEnum):
    """State of an attempt. Only a resume that rolls a step back moves an attempt out of `trained` or `baseline`.

    A `baseline` was compared with what its step trained; it is not trained itself.
    """

    IN_FLIGHT = "in_flight"
    FINISHED = "finished"
    TRAINED = "trained"
    BASELINE = "baseline"
    FILTERED = "filtered"
    STALE = "stale"
    INVALID = "invalid"
    UNANSWERED = "unanswered"
    CANCELLED = "cancelled"
    LOST = "lost"


# SQLite itself enforces the law: no unknown move between states, no two living attempts at one sample, no second
# training of a sample in one lineage, no episode of another split.
SCHEMA = """
CREATE TABLE IF NOT EXISTS incarnations (
  id INTEGER PRIMARY KEY, fork INTEGER NOT NULL, published INTEGER NOT NULL, started_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, published INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS moves (before TEXT, after TEXT, PRIMARY KEY (before, after)) WITHOUT ROWID;
INSERT OR IGNORE INTO moves VALUES
  ('in_flight', 'finished'), ('in_flight', 'cancelled'), ('in_flight', 'lost'),
  ('finished', 'trained'), ('finished', 'filtered'), ('finished', 'stale'), ('finished', 'invalid'),
  ('finished', 'unanswered'),
  ('finished', 'cancelled'), ('finished', 'lost'), ('trained', 'finished'),
  ('finished', 'baseline'), ('baseline', 'finished');
CREATE TABLE IF NOT EXISTS attempts (
  grp INTEGER NOT NULL, member INTEGER NOT NULL, attempt INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  split TEXT NOT NULL CHECK (split = 'train'), env TEXT NOT NULL, epoch INTEGER NOT NULL, task_index INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'in_flight', reason TEXT NOT NULL DEFAULT '', step INTEGER,
  oldest TEXT, tokens INTEGER, turns INTEGER, reward REAL, stop_reason TEXT,
  dispatched_at REAL NOT NULL, finished_at REAL, settled_at REAL,
  PRIMARY KEY (grp, member, attempt), CHECK ((state IN ('trained', 'baseline')) = (step IS NOT NULL))
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_living_attempt ON attempts (grp, member)
  WHERE state IN ('in_flight', 'finished', 'trained', 'baseline');
CREATE INDEX IF NOT EXISTS by_state ON attempts (state);
CREATE TRIGGER IF NOT EXISTS only_known_moves BEFORE UPDATE OF state ON attempts
  WHEN NOT EXISTS (SELECT 1 FROM moves WHERE before = OLD.state AND after = NEW.state)
  BEGIN SELECT RAISE(ABORT, 'an attempt cannot move between these states'); END;
CREATE TABLE IF NOT EXISTS trainings (
  grp INTEGER NOT NULL, member INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL,
  incarnation INTEGER NOT NULL, rolled_back_by INTEGER
);
CREATE TABLE IF NOT EXISTS outcomes (
  grp INTEGER PRIMARY KEY, env TEXT NOT NULL, task_index INTEGER NOT NULL, task_id TEXT NOT NULL,
  samples INTEGER NOT NULL, solved REAL NOT NULL, invalid INTEGER NOT NULL, step INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS once_in_a_lineage ON trainings (grp, member) WHERE rolled_back_by IS NULL;
"""

# With max() SQLite takes the other columns from the row that has the maximum.
LAST_ATTEMPTS = "SELECT grp, member, max(attempt) AS attempt, state FROM attempts GROUP BY grp, member"


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Number of attempts by state. `rolled_back` counts trainings undone by a resume; their attempts count again."""

    dispatched: int = 0
    in_flight: int = 0
    finished: int = 0
    trained: int = 0
    baseline: int = 0
    filtered: int = 0
    stale: int = 0
    invalid: int = 0
    unanswered: int = 0
    cancelled: int = 0
    lost: int = 0
    rolled_back: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt at a sample; times are in Unix seconds."""

    group: int
    member: int
    attempt: int
    incarnation: int
    split: str
    env: str
    epoch: int
    task_index: int
    state: State
    reason: str
    step: int | None
    oldest: str | None
    tokens: int | None
    turns: int | None
    reward: float | None
    stop_reason: str | None
    dispatched_at: float
    finished_at: float | None
    settled_at: float | None

    @property
    def sample(self) -> SampleId:
        """The sample of the attempt."""
        return SampleId(self.group, self.member)


@dataclass(slots=True)
class Ledger:
    """The ledger in the file `path`, created if it does not exist. Every call is one transaction.

    A call that breaks the law (an unknown attempt, an illegal move, a second training) raises RunError and changes
    nothing. Safe to use from several threads; `is_read_only` is for reading a run that another process writes.
    """

    path: Path
    is_read_only: bool = False
    _db: sqlite3.Connection = field(init=False, repr=False)
    _lock: threading.RLock = field(init=False, repr=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        if self.is_read_only and not self.path.exists():
            raise RunError(f"no ledger in {self.path.parent}: nothing was trained there")
        uri = f"{self.path.resolve().as_uri()}?mode={'ro' if self.is_read_only else 'rwc'}"
        try:
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
            if not self.is_read_only:
                # WAL without a sync per transaction survives the process; `sync` is for a crash of the machine.
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.executescript(SCHEMA)
            self._db.execute("SELECT attempts.env, outcomes.step FROM attempts, outcomes LIMIT 1")
        except sqlite3.DatabaseError as error:
            raise explained(error, self.path) from error

    def close(self) -> None:
        """Write everything into the file and close it. Idempotent."""
        self._db.close()

    # --- incarnations ---------------------------------------------------------------------------------------

    def begin_incarnation(self, resumed_at_step: int | None = None) -> int:
        """Start the run (None) or resume it at the checkpoint of a step; returns the number of the incarnation.

        A resume marks attempts in flight as lost and rolls trainings after the step back to finished.
        """
        fork = resumed_at_step or 0
        with self._write() as db:
            number: int = db.execute("SELECT count(*) FROM incarnations").fetchone()[0]
            if number and resumed_at_step is None:
                raise RunError(
                    f"{self.path}: this run has begun already. Continue it with `agentrl resume {self.path.parent}`."
                )
            if fork and not number:
                raise RunError(
                    f"{self.path}: the ledger is empty, so the run cannot continue from step {fork}. Restore the file."
                )
            now = time.time()
            db.execute("DELETE FROM steps WHERE step > ?", (fork,))
            published = db.execute("SELECT max(published) FROM steps").fetchone()[0] or 0
            db.execute("INSERT INTO incarnations VALUES (?, ?, ?, ?)", (number, fork, published, now))
            reason = "the run ended while it was in flight"
            settle = "UPDATE attempts SET state = 'lost', reason = ?, settled_at = ? WHERE state = 'in_flight'"
            db.execute(settle, (reason, now))
            again = "UPDATE attempts SET state = 'finished', step = NULL, settled_at = NULL WHERE step > ?"
            db.execute(again, (fork,))
            undo = "UPDATE trainings SET rolled_back_by = ? WHERE step > ? AND rolled_back_by IS NULL"
            db.execute(undo, (number, fork))
        return number

    def forks(self) -> tuple[int, ...]:
        """Return the step at which each incarnation began."""
        return tuple(fork for (fork,) in self._read("SELECT fork FROM incarnations ORDER BY id"))

    def published(self) -> tuple[int, ...]:
        """Return the publication count at which each incarnation began (see `agentrl.types.age`)."""
        return tuple(n for (n,) in self._read("SELECT published FROM incarnations ORDER BY id"))

    def sync(self) -> None:
        """Wait until everything recorded is on the disk itself."""
        with self._lock:
            try:
                self._db.execute("PRAGMA wal_checkpoint(FULL)")
            except sqlite3.Error as error:
                raise explained(error, self.path) from error

    # --- the life of an attempt -----------------------------------------------------------------------------

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """Record attempts that are about to run. Refuses any split but train: evaluations never enter the ledger."""
        now, incarnation = time.time(), self._incarnation()
        rows = [(*r.sample, r.attempt, incarnation, r.split, r.env, r.epoch, r.task_index, now) for r in requests]
        columns = "grp, member, attempt, incarnation, split, env, epoch, task_index, dispatched_at"
        with self._write() as db:
            db.executemany(f"INSERT INTO attempts ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def finished(self, trajectories: Iterable[Trajectory]) -> None:
        """Record attempts that came back; their trajectories are stored already."""
        now = time.time()
        rows = [
            (*_measures(trajectory), now, *trajectory.sample, trajectory.attempt, State.IN_FLIGHT)
            for trajectory in trajectories
        ]
        sets = "state = 'finished', oldest = ?, tokens = ?, turns = ?, reward = ?, stop_reason = ?, finished_at = ?"
        self._update(f"UPDATE attempts SET {sets} WHERE grp = ? AND member = ? AND attempt = ? AND state = ?", rows)

    def settle(self, attempts: Iterable[AttemptId], state: State, reason: str) -> None:
        """Record attempts that end untrained: filtered, stale, invalid, unanswered, cancelled or lost."""
        now = time.time()
        rows = [(State(state).value, reason, now, *sample, attempt) for sample, attempt in attempts]
        sets = "state = ?, reason = ?, settled_at = ?"
        self._update(f"UPDATE attempts SET {sets} WHERE grp = ? AND member = ? AND attempt = ?", rows)

    def trained(
        self, samples: Iterable[SampleId], step: int, published: int | None = None, baselines: Iterable[SampleId] = ()
    ) -> None:
        """Record that the learner trained the finished attempts at these samples in `step`, once per lineage.

        The finished attempts at `baselines` were compared with them. `published` is the publication count after the
        step; by default every step counts as one publication.
        """
        now, incarnation = time.time(), self._incarnation()
        pairs, compared = list(samples), list(baselines)
        where = "WHERE grp = ? AND member = ? AND state = 'finished'"
        columns = "grp, member, attempt, step, incarnation"
        with self._write() as db:
            copy = f"INSERT INTO trainings ({columns}) SELECT grp, member, attempt, ?, ? FROM attempts {where}"
            done = db.executemany(copy, [(step, incarnation, *pair) for pair in pairs]).rowcount if pairs else 0
            db.execute("INSERT OR REPLACE INTO steps VALUES (?, ?)", (step, step if published is None else published))
            sets = "UPDATE attempts SET state = ?, step = ?, settled_at = ?"
            db.executemany(f"{sets} {where}", [(State.TRAINED, step, now, *pair) for pair in pairs])
            rows = [(State.BASELINE, step, now, *pair) for pair in compared]
            done += db.executemany(f"{sets} {where}", rows).rowcount if rows else 0
            if missing := len(pairs) + len(compared) - done:
                raise RunError(f"{self.path}: {missing} samples of step {step} were not waiting for training.")

    # --- for a resume -----------------------------------------------------------------------------------------

    def waiting(self) -> list[AttemptId]:
        """Return the finished attempts that are not settled or trained yet."""
        rows = self._read("SELECT grp, member, attempt FROM attempts WHERE state = 'finished'")
        return [(SampleId(group, member), attempt) for group, member, attempt in rows]

    def last_attempts(self) -> dict[SampleId, int]:
        """Return the number of the last attempt at every sample of the groups that continue after a resume.

        These are groups with a finished sample, and groups that were interrupted (the last attempt at a sample was
        lost or cancelled) before any of their samples was trained, filtered or stale, or was the baseline of a step.
        """
        settled = "sum(state IN ('trained', 'baseline', 'filtered', 'stale')) > 0"
        interrupted = "sum(state IN ('lost', 'cancelled')) > 0"
        continues = f"sum(state = 'finished') > 0 OR ({interrupted} AND NOT {settled})"
        groups = f"(SELECT grp FROM ({LAST_ATTEMPTS}) GROUP BY grp HAVING {continues})"
        query = f"SELECT grp, member, attempt FROM ({LAST_ATTEMPTS}) WHERE grp IN {groups}"
        return {SampleId(group, member): attempt for group, member, attempt in self._read(query)}

    def unanswered(self) -> set[SampleId]:
        """Return the samples whose last attempt was unanswered; a further attempt would be too."""
        query = f"SELECT grp, member FROM ({LAST_ATTEMPTS}) WHERE state = 'unanswered'"
        return {SampleId(group, member) for group, member in self._read(query)}

    def groups(self) -> dict[int, GroupTask]:
        """Return the task of every group that was dispatched."""
        rows = self._read("SELECT DISTINCT grp, env, epoch, task_index FROM attempts ORDER BY grp")
        return {group: GroupTask(*task) for group, *task in rows}

    # --- outcomes of groups -----------------------------------------------------------------------------------

    def observed(self, outcome: GroupOutcome) -> None:
        """Record the outcome of a group; one that a resume trains again has the later one."""
        with self._write() as db:
            db.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(outcome))

    def outcomes(self) -> list[GroupOutcome]:
        """Return the outcome of every group that was observed, by group."""
        return [GroupOutcome(*row) for row in self._read("SELECT * FROM outcomes ORDER BY grp")]

    # --- for reports ----------------------------------------------------------------------------------------

    def counts(self) -> LedgerCounts:
        """Return the number of attempts by state."""
        with self._lock:
            states: dict[str, int] = dict(self._read("SELECT state, count(*) FROM attempts GROUP BY state"))
            undone = next(self._read("SELECT count(*) FROM trainings WHERE rolled_back_by IS NOT NULL"))[0]
        return LedgerCounts(dispatched=sum(states.values()), rolled_back=undone, **states)

    def rows(self) -> Iterator[AttemptRow]:
        """Return every attempt, by group, member and attempt."""
        return map(_row, self._read("SELECT * FROM attempts ORDER BY grp, member, attempt"))

    def row(self, attempt: AttemptId) -> AttemptRow | None:
        """Return one attempt, None if it was never dispatched."""
        sample, number = attempt
        found = self._read("SELECT * FROM attempts WHERE grp = ? AND member = ? AND attempt = ?", *sample, number)
        return next(map(_row, found), None)

    # --- inside ---------------------------------------------------------------------------------------------

    def _incarnation(self) -> int:
        newest = next(self._read("SELECT max(id) FROM incarnations"))[0]
        if newest is None:
            raise RunError(f"{self.path}: the run has not begun; call begin_incarnation first.")
        return int(newest)

    def _read(self, query: str, *values: Any) -> Iterator[Any]:
        with self._lock:
            return iter(self._db.execute(query, values).fetchall())

    def _update(self, query: str, rows: list[tuple[Any, ...]]) -> None:
        with self._write() as db:
            done = db.executemany(query, rows).rowcount if rows else 0
            if done != len(rows):
                raise RunError(
                    f"{self.path}: {len(rows) - done} of {len(rows)} attempts are unknown or in another state."
                )

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise explained(error, self.path) from error
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")


def explained(error: sqlite3.Error, path: Path) -> RunError:
    """Return an error of SQLite with advice."""
    if "no such column" in str(error):
        return RunError(f"{path} was written by an earlier version of agentrl: read the run with that version.")
    if "disk is full" in str(error):
        return RunError(f"{path}: the disk is full. Make room, then continue with `agentrl resume {path.parent}`.")
    if isinstance(error, sqlite3.IntegrityError):
        return RunError(f"{path}: the conservation law forbids this: {error}.")
    return RunError(
        f"{path}: the ledger cannot be used: {error}. Check the disk, and that no other process writes to it."
    )


def _row(columns: tuple[Any, ...]) -> AttemptRow:
    fields = (*columns[:8], State(columns[8]), *columns[9:])
    return AttemptRow(*fields)


def _measures(trajectory: Trajectory) -> tuple[str | None, int, int, float | None, str]:
    oldest = trajectory.oldest_version
    reward = trajectory.reward if trajectory.is_valid else None
    version = None if oldest is None else str(oldest)
    return version, trajectory.action_tokens, trajectory.turns, reward, trajectory.stop_reason.value

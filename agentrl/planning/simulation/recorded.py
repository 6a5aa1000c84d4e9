"""A recorded run, as far as a simulation needs it: its steps, and every attempt with its times."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agentrl.algorithms.base import Algorithm, RunShape
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.keys import value_of
from agentrl.config.loading import load
from agentrl.config.schema import Config
from agentrl.config.validate import counted
from agentrl.errors import ConfigError
from agentrl.metrics.step import StepRecord
from agentrl.metrics.trackers import read_steps
from agentrl.planning.simulation.changes import CHOSEN
from agentrl.planning.simulation.episode import Episode
from agentrl.planning.simulation.workload import Attempt, RecordedGroup
from agentrl.records.folder import RunFolder, existing_run
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.records.store import scan
from agentrl.types import AttemptId, SampleId, Version

LEAST_STEPS = 4
"""Steps without which there is nothing to calibrate: two halves of two."""


@dataclass(frozen=True, slots=True)
class TimedAttempt:
    """An attempt that ended: its times in Unix seconds, the steps during which it ended and in which it was trained.

    `ended_in` is 0 if it ended during no step, as between a kill and the resume. `episode` is None if its process died.
    """

    sample: SampleId
    attempt: int
    env: str
    dispatched_at: float
    ended_at: float
    ended_in: int
    trained_in: int | None
    episode: Episode | None


@dataclass(frozen=True)
class RecordedRun:
    """A run's configuration, its steps and the attempts that ended."""

    folder: Path
    config: Config
    algorithm: Algorithm
    steps: tuple[StepRecord, ...]
    attempts: tuple[TimedAttempt, ...]

    @property
    def plain_steps(self) -> list[StepRecord]:
        """The steps that show how long a step takes: no warm-up, evaluation or checkpoint is among their seconds.

        Libraries warm up in the first step after a start.
        """
        starts = {0, *(n for n, (a, b) in enumerate(zip(self.steps, self.steps[1:], strict=False), 1) if _differ(a, b))}
        return [
            step
            for number, step in enumerate(self.steps)
            if number not in starts and step.seconds.evaluate + step.seconds.checkpoint == 0
        ]

    def groups(self, steps: Iterable[StepRecord]) -> list[RecordedGroup]:
        """Return the groups whose last member ended during one of these steps, in the order of dispatch."""
        chosen, size = {step.step for step in steps}, self.config.rollout.group_size
        members: dict[int, dict[int, list[TimedAttempt]]] = collections.defaultdict(dict)
        for attempt in self.attempts:
            members[attempt.sample.group].setdefault(attempt.sample.member, []).append(attempt)
        found = []
        for group in sorted(members):
            attempts = [members[group].get(n, []) for n in range(size + self.algorithm.requirements.greedy)]
            is_whole = all(attempts)
            if is_whole and max(each[-1].ended_in for each in attempts) in chosen:
                parts = [tuple(Attempt(a.episode, a.ended_at - a.dispatched_at) for a in each) for each in attempts]
                found.append(RecordedGroup(attempts[0][0].env, tuple(parts[:size]), tuple(parts[size:])))
        return found


def read(folder: Path) -> RecordedRun:
    """Read a run. Raises ConfigError for one that no simulation can be calibrated by, with what it lacks."""
    run = RunFolder(existing_run(folder))
    if not run.is_training:
        raise ConfigError(
            f"{folder} has no {run.ledger.name}, as an evaluation, or a part of a run: a simulation needs the whole "
            "folder of a training run"
        )
    config, steps = load(run.config), tuple(read_steps(run))
    if unset := [key for key in CHOSEN if value_of(config, key) == 0]:
        raise ConfigError(
            f"{run.config} has no {unset[0]}, which every run writes into it: the file is cut short or was edited. "
            "Restore it, or record another run"
        )
    algorithm = make_algorithm(config.algorithm, RunShape.of(config))
    recorded = RecordedRun(run.path, config, algorithm, steps, tuple(_attempts(run, steps)))
    if (count := len(recorded.plain_steps)) < LEAST_STEPS:
        raise ConfigError(
            f"{folder} has {count} of the {LEAST_STEPS} steps that a simulation needs. Of its "
            f"{counted(len(steps), 'step')}, the first and those just after an evaluation or a checkpoint do not "
            "count. Record a longer run, for example with --steps 16 --eval.tasks 0 --checkpoint.every 0"
        )
    if not any(attempt.episode for attempt in recorded.attempts):
        raise ConfigError(f"{folder} has no trajectories: {run.trajectories} is empty, damaged or was removed")
    return recorded


def _differ(before: StepRecord, after: StepRecord) -> bool:
    """Return whether a resume is between two steps."""
    return Version.parse(before.version).incarnation != Version.parse(after.version).incarnation


def _attempts(run: RunFolder, steps: Sequence[StepRecord]) -> Iterator[TimedAttempt]:
    """Yield the attempts that ended, in the order of the ledger."""
    episodes: dict[AttemptId, Episode] = {(t.sample, t.attempt): Episode.of(t) for t in scan(run.trajectories)}
    with closing(Ledger(run.ledger, is_read_only=True)) as ledger:
        rows = list(ledger.rows())
    for row in rows:
        episode, ended_at = episodes.get((row.sample, row.attempt)), _ended_at(row)
        if ended_at and (episode or row.state is State.LOST):
            times = row.dispatched_at, ended_at, _step_at(ended_at, steps), row.step
            yield TimedAttempt(row.sample, row.attempt, row.env, *times, episode)


def _step_at(time: float, steps: Sequence[StepRecord]) -> int:
    """Return the step during which something happened, 0 if it was none, as between a kill and the resume."""
    number = bisect.bisect_left(steps, time, key=lambda step: step.at)
    return steps[number].step if number < len(steps) and time >= steps[number].at - steps[number].seconds.total else 0


def _ended_at(row: AttemptRow) -> float | None:
    """Return when an attempt came back, or was found to be lost."""
    return row.finished_at or (row.settled_at if row.state is State.LOST else None)

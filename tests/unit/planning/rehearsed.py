"""The folder of a run that was simulated: its records are written by the classes that write those of a real run."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from agentrl.config.schema import Config
from agentrl.metrics.step import Learned, step_record
from agentrl.metrics.trackers import Metrics
from agentrl.planning.simulation import loop
from agentrl.planning.simulation.calibration import Calibration
from agentrl.planning.simulation.cluster import SimulatedLearner, Speeds
from agentrl.planning.simulation.loop import CountingLog, Played, play
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.types import AttemptId, Batch, DropReason, EpisodeRequest, StepReport, Trajectory, Version

EPOCH = 1_760_000_000.0


@dataclass
class Diary:
    """What happened, with the simulated time; played into the records afterwards."""

    events: list[tuple[float, Callable[[Ledger, TrajectoryStore], None]]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    step: int = 0

    def note(self, event: Callable[[Ledger, TrajectoryStore], None]) -> None:
        self.events.append((asyncio.get_running_loop().time(), event))


class WritingLog(CountingLog):
    def __init__(self, diary: Diary) -> None:
        super().__init__()
        self._diary = diary

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        chosen = list(requests)
        super().dispatched(chosen)
        self._diary.note(lambda ledger, _: ledger.dispatched(chosen))

    def finished(self, trajectory: Trajectory) -> None:
        super().finished(trajectory)
        self._diary.note(lambda _, store: store.append([trajectory]))
        self._diary.note(lambda ledger, _: ledger.finished([trajectory]))

    def settled(self, attempts: Iterable[AttemptId], outcome: DropReason, reason: str) -> None:
        chosen = list(attempts)
        super().settled(chosen, outcome, reason)
        self._diary.note(lambda ledger, _: ledger.settle(chosen, State(outcome), reason))


class WritingLearner(SimulatedLearner):
    diary: Diary

    async def update(self, batch: Batch) -> bool:
        has_moved = await super().update(batch)
        self.diary.step += 1
        step, samples = self.diary.step, [t.sample for g in batch.groups for t in g.trajectories]
        self.diary.batches.append(batch)
        self.diary.note(lambda ledger, _: ledger.trained(samples, step))
        return has_moved


def rehearse(path: Path, calibration: Calibration, config: Config, steps: int = 12, seed: int = 0) -> RunFolder:
    """Simulate a run and write its folder."""
    diary = Diary()
    learner = type("Learner", (WritingLearner,), {"diary": diary})
    with patch.multiple(loop, CountingLog=partial(WritingLog, diary), SimulatedLearner=learner):
        played = play(calibration, config, Speeds(), steps, seed=seed)
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.config.write_text(toml_of(config))
    _write_attempts(folder, diary)
    _write_steps(folder, diary, played)
    return folder


def _write_attempts(folder: RunFolder, diary: Diary) -> None:
    ledger, store = Ledger(folder.ledger), TrajectoryStore(folder.trajectories)
    ledger.begin_incarnation()
    with clock() as now:
        for at, event in diary.events:
            now.at = EPOCH + at
            event(ledger, store)
    store.close()
    ledger.close()


@contextmanager
def clock() -> Iterator[SimpleNamespace]:
    """Let the ledger read the time in `at`."""
    now = SimpleNamespace(at=EPOCH)
    with patch("agentrl.records.ledger.time", SimpleNamespace(time=lambda: now.at)):
        yield now


def _write_steps(folder: RunFolder, diary: Diary, played: Played) -> None:
    metrics, at = Metrics(folder, Config.model_validate({"track": {"tensorboard": False}})), EPOCH
    for number, (batch, step) in enumerate(zip(diary.batches, played.steps, strict=True), 1):
        at += step.seconds.total
        has_moved = step.seconds.publish > 0
        report = StepReport(0.0, 0.0, 0.0, 0, int(has_moved), (), step.seconds.learn)
        record = step_record(number, Version(0, number), batch, Learned((report,), 0), step.seconds)
        metrics.step(replace(record, at=at - step.seconds.other))  # a run rests after it has recorded a step
    metrics.close()


def toml_of(config: Config) -> str:
    """The keys that were set, as TOML."""
    tree = config.model_dump(exclude_unset=True, exclude={"env"})
    top = [f"{key} = {_value(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for section, keys in tree.items():
        if isinstance(keys, dict):
            top += [f"[{section}]", *(f"{key} = {_value(value)}" for key, value in keys.items())]
    text = "\n".join(top)
    tomllib.loads(text)
    return text


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

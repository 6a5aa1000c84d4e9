"""`agentrl.Run`: the content of a run's folder as typed objects, for notebooks and scripts."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from agentrl.config.loading import load
from agentrl.config.schema import Config
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.metrics.step import EvaluationRecord, StepRecord
from agentrl.metrics.trackers import best_evaluation, read_evaluations, read_steps
from agentrl.records.checkpoints import folder_of, steps_in
from agentrl.records.folder import RunFolder, existing_run
from agentrl.records.ledger import AttemptRow, Ledger
from agentrl.records.store import scan
from agentrl.report import summary
from agentrl.report.export import rows, stored
from agentrl.report.summary import Summary
from agentrl.types import Trajectory

Table = Literal["steps", "evaluations", "trajectories"]


class Run:
    """A run, finished or still going, read from its folder. Each access reads the files again; nothing is written.

    A run is path-like: functions that take the folder of a run take the object too.
    Raises ConfigError for a folder that is not a run's.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = existing_run(path)
        self._folder = RunFolder(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config(self) -> Config:
        """The configuration as resolved."""
        return load(self._folder.config)

    @property
    def steps(self) -> list[StepRecord]:
        """The steps so far, in order; a step that a resume repeated counts once."""
        return read_steps(self._folder)

    @property
    def evaluations(self) -> list[EvaluationRecord]:
        """The evaluations so far, in order."""
        return read_evaluations(self._folder)

    @property
    def summary(self) -> Summary | None:
        """How the run ended, None if it has not ended."""
        return summary.read(self._folder)

    @property
    def attempts(self) -> list[AttemptRow]:
        """Every training attempt with its state, by group, member and attempt; empty for an evaluation."""
        if not self._folder.ledger.is_file():
            return []
        with closing(Ledger(self._folder.ledger, is_read_only=True)) as ledger:
            return list(ledger.rows())

    def trajectories(self, evaluation: int | None = None) -> Iterator[Trajectory]:
        """Yield the trajectories of training, or of the evaluation after a step, in the order of storing."""
        return scan(stored(self._folder, evaluation))

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the newest checkpoint; `<checkpoint>/model` loads with `from_pretrained`."""
        steps = steps_in(self._folder.checkpoints)
        return folder_of(self._folder.checkpoints, steps[-1]) if steps else None

    @property
    def best_checkpoint(self) -> Path | None:
        """The folder of the checkpoint with the best evaluation, None if no step with a checkpoint was evaluated."""
        best = best_evaluation(self._folder)
        return folder_of(self._folder.checkpoints, best.step) if best else None

    @property
    def report(self) -> Path:
        """The HTML report, which is written when the run ends."""
        return self._folder.report

    def frame(self, what: Table) -> Any:
        """Return a pandas DataFrame with a row for each step, evaluation or training trajectory.

        Its columns are the fields of StepRecord or EvaluationRecord, nested ones as "learner.loss", or those of an
        export. Raises ConfigError if pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise ConfigError("a frame needs pandas: `pip install pandas`") from None
        return pandas.DataFrame([flat(msgspec.to_builtins(item)) for item in self._items(what)])

    def _items(self, what: Table) -> Iterable[Any]:
        match what:
            case "steps":
                return self.steps
            case "evaluations":
                return self.evaluations
            case "trajectories":
                return rows(self._folder)
            case _:
                raise UnknownNameError("table", what, get_args(Table))


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one level, with keys such as "learner.loss"."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out

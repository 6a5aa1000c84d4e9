"""What lies where in the folder of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.errors import ConfigError, did_you_mean
from agentrl.records.hold import check_free


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run under `path`."""

    path: Path

    @property
    def is_training(self) -> bool:
        """True for the folder of a run that trains; an evaluation keeps no ledger."""
        return self.config.is_file() and self.ledger.is_file()

    @property
    def config(self) -> Path:
        """The configuration as resolved (TOML)."""
        return self.path / "config.toml"

    @property
    def manifest(self) -> Path:
        """Versions and hashes of everything the run was made of."""
        return self.path / "manifest.json"

    @property
    def ledger(self) -> Path:
        """What became of every attempt (SQLite)."""
        return self.path / "ledger.sqlite"

    @property
    def audit(self) -> Path:
        """What the scheduler dispatched and each rank trained, by their own account (JSON lines)."""
        return self.path / "audit.jsonl"

    @property
    def metrics(self) -> Path:
        """One StepRecord per line."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """One EvaluationRecord per line."""
        return self.path / "evaluations.jsonl"

    @property
    def restarts(self) -> Path:
        """One Restart per line."""
        return self.path / "restarts.jsonl"

    @property
    def trajectories(self) -> Path:
        """Every training trajectory (a TrajectoryStore)."""
        return self.path / "trajectories"

    def evaluated(self, step: int) -> Path:
        """The trajectories of the evaluation after `step` (a TrajectoryStore)."""
        return self.path / "evaluations" / f"{step:06d}"

    def evaluated_steps(self) -> list[int]:
        """The steps whose evaluation has its trajectories on disk, in order."""
        return sorted(int(path.name) for path in (self.path / "evaluations").glob("[0-9]*"))

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """One folder for each step that can be resumed from."""
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        """How the run ended (JSON)."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The report: one HTML file."""
        return self.path / "report.html"


def existing_run(path: Path) -> Path:
    """`path` if it is the folder of a run, else a ConfigError with the nearest run."""
    if RunFolder(path).config.is_file():
        return path
    runs = [str(file.parent) for folder in (path, path.parent) for file in folder.glob("*/config.toml")]
    raise ConfigError(f"no run in {path}: it has no config.toml.{did_you_mean(str(path), runs)}")


def check_out(out: Path | None) -> None:
    """Raise ConfigError where no new run can be written to `out` (None: a folder under ./runs). Leaves nothing."""
    path = (out or Path("runs")).absolute()
    try:
        if out is not None and RunFolder(path).config.exists():
            check_free(path)
            raise taken(out)
        nearest = next(place for place in (path, *path.parents) if place.exists())
        with TemporaryDirectory(prefix=".agentrl-", dir=nearest):
            return
    except OSError as error:
        raise unwritable(path, error) from error


def taken(path: Path) -> ConfigError:
    """The refusal of a folder that holds a run."""
    return ConfigError(f"{path} holds a run already: go on with `agentrl resume {path}`, or choose another --out")


def unwritable(path: Path, error: OSError) -> ConfigError:
    """The refusal of a folder that cannot be made or written."""
    return ConfigError(f"cannot write {path}: {error.strerror}; choose another --out")

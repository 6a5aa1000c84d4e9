"""The folder of a run: its files, its lock, and the checks before one is made."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.config.values import expanded
from agentrl.errors import ConfigError, RunError, did_you_mean
from agentrl.records.jsonl import write_atomic

LOCK_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""The answers of file systems without locks, such as Lustre as it is often mounted: nothing can be checked there."""


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
    def lock(self) -> Path:
        """The lock of the process that drives the run; it contains the process's id."""
        return self.path / "driver.lock"

    @property
    def mark(self) -> Path:
        """A random text of the last start, by which learner ranks tell this folder from a copy on their machine."""
        return self.path / "driver.mark"

    @property
    def manifest(self) -> Path:
        """Versions and hashes of everything the run was made of (a RunManifest)."""
        return self.path / "manifest.json"

    @property
    def ledger(self) -> Path:
        """The state of every training attempt (a Ledger)."""
        return self.path / "ledger.sqlite"

    @property
    def audit(self) -> Path:
        """What the scheduler dispatched and each rank trained (an AuditLog)."""
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

    @property
    def replies(self) -> Path:
        """What the roles replied to the episodes of each rollout worker (ReplyFiles)."""
        return self.path / "roles"

    def evaluated(self, step: int) -> Path:
        """Return the trajectories of the evaluation after `step` (a TrajectoryStore)."""
        return self.path / "evaluations" / f"{step:06d}"

    def evaluated_steps(self) -> list[int]:
        """Return the steps whose evaluation has its trajectories on disk, in order."""
        return sorted(int(path.name) for path in (self.path / "evaluations").glob("[0-9]*"))

    @property
    def tensorboard(self) -> Path:
        """The event files of TensorBoard."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """A folder for each step from which the run can be resumed."""
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        """How the run ended (JSON, a Summary)."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The report: one HTML file."""
        return self.path / "report.html"


def marked(folder: RunFolder) -> str:
    """Write a new mark into the folder, and return it: a process that reads it back sees this folder."""
    text = secrets.token_hex(16)
    write_atomic(folder.mark, text.encode())
    return text


def path_of(value: object, name: str) -> Path:
    """Return the argument `name` as a path; raises ConfigError if it is none or empty."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.strip()):
        return expanded(value)
    raise ConfigError(f"argument {name} must be a non-empty path, got {value!r}")


def existing_run(path: str | os.PathLike[str]) -> Path:
    """Return `path` if it is the folder of a run; raises ConfigError with the nearest run otherwise."""
    path = path_of(path, "path")
    if RunFolder(path).config.is_file():
        return path
    runs = [str(file.parent) for folder in (path, path.parent) for file in folder.glob("*/config.toml")]
    raise ConfigError(f"no run in {path}: it has no config.toml.{did_you_mean(str(path), runs)}")


def check_out(out: Path | None) -> None:
    """Raise ConfigError if no new run can be written to `out` (None: a folder under ./runs). Leaves nothing behind."""
    path = (out or Path("runs")).absolute()
    try:
        if out is not None and RunFolder(path).config.exists():
            check_free(path)
            raise taken(out)
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        with TemporaryDirectory(prefix=".agentrl-", dir=nearest):
            return
    except OSError as error:
        raise unwritable(path, error) from error


def taken(path: Path) -> ConfigError:
    """Return the error for a folder that contains a run already."""
    return ConfigError(
        f"{path} contains a run already: continue it with `agentrl resume {path}`, or choose another --out"
    )


def unwritable(path: Path, error: OSError) -> ConfigError:
    """Return the error for a file or folder that cannot be created or written."""
    return ConfigError(f"cannot write {path}: {error.strerror}; choose another --out")


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the run in the folder `path`: one process at a time drives a run.

    The kernel releases it however the process ends. Raises RunError with the process that holds it, and its host.
    """
    lock = RunFolder(path).lock
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path} is in use by process {lock.read_text(errors='replace')}") from None
        except OSError as error:
            if error.errno not in LOCK_UNSUPPORTED:
                raise
        file.truncate(0)
        file.write(f"{os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def check_free(path: Path) -> None:
    """Raise the same RunError if a process drives the run in the folder `path`. Changes nothing."""
    if RunFolder(path).lock.exists():
        with run_lock(path):
            return

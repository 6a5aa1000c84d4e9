"""The process of one check: `python -m verification.child`, which the runner starts."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from agentrl.errors import catch
from verification.check import Setting, SkipError, State

LINES, CHARACTERS = 4, 400
"""What is reported of an error; all of it is in the output."""
STACKS_S = 2.0
"""How long before the deadline the stacks of all threads are printed."""


@dataclass(frozen=True)
class Job:
    """One check in its process: what to run, where, and the file for its answer."""

    target: str
    device: str
    gpus: int
    folder: str
    answer: str
    deadline_s: float

    @property
    def words(self) -> list[str]:
        """The job as an argument of a command line."""
        return [json.dumps(asdict(self))]


def run(job: Job) -> tuple[State, str]:
    """Run a check and return its state, with its figure, error or reason."""
    module, _, name = job.target.partition(":")
    setting = Setting(job.device, job.gpus, Path(job.folder))
    outcome = catch(lambda: getattr(import_module(module), name)(setting))
    if outcome.error is None:
        return "passed", str(outcome.value)
    if isinstance(outcome.error, SkipError):
        return "skipped", str(outcome.error)
    if isinstance(outcome.error, ModuleNotFoundError) and (package := _absent(outcome.error)):
        return "skipped", f"not installed: {package}"
    traceback.print_exception(outcome.error)
    return "failed", first_lines(f"{type(outcome.error).__name__}: {outcome.error}")


def _absent(error: ModuleNotFoundError) -> str:
    """Return the package that is not installed; "" if it is, but lacks a module."""
    package = (error.name or "").partition(".")[0]
    return package if package and find_spec(package) is None else ""


def first_lines(text: str) -> str:
    """Return the beginning of a text, as one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:LINES])[:CHARACTERS]


def main() -> None:
    """Run the check that the command line describes, and write its answer as one file."""
    job = Job(**json.loads(sys.argv[1]))
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.5, job.deadline_s - STACKS_S))
    answer, written = run(job), Path(f"{job.answer}.partial")
    written.write_text(json.dumps(answer))
    written.rename(job.answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries may keep Python from ending


if __name__ == "__main__":
    main()

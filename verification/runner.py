"""Runs checks one after the other, each in a process of its own that cannot outlast its deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from verification import processes
from verification.check import Check, Result, State
from verification.child import Job, first_lines
from verification.hardware import Hardware

ROOT = Path(__file__).parents[1]
LEAST_S = 10.0
"""A check is not begun with less time than this."""
OUTPUT = 4000
"""Characters of a failed check's output that are kept."""


def run(checks: Sequence[Check], hardware: Hardware, ends_at: float = float("inf")) -> Iterator[Result]:
    """Yield the result of each check as it ends; `ends_at` is the end of the time for all, by the monotonic clock.

    Processes that are left over are killed, and with them every other process under this one: call it in a process of
    its own.
    """
    processes.adopt_orphans()
    for check in checks:
        yield _result(check, hardware, ends_at)


def _result(check: Check, hardware: Hardware, ends_at: float) -> Result:
    if reason := check.needs.missing(hardware):
        return Result(check.name, "skipped", reason)
    left_s = ends_at - time.monotonic()
    if left_s < min(LEAST_S, check.deadline_s):
        return Result(check.name, "skipped", "no time is left")
    with tempfile.TemporaryDirectory(prefix="verify-gpu-", ignore_cleanup_errors=True) as folder:
        return _run(check, len(hardware.gpus), Path(folder), left_s)


def _run(check: Check, gpus: int, folder: Path, left_s: float) -> Result:
    """Run a check in a process group of its own, which is killed in any case."""
    work, answer, log = folder / "work", folder / "answer.json", folder / "log"
    work.mkdir()
    deadline_s, began = min(check.deadline_s, left_s), time.monotonic()
    job = Job(check.target, "cuda" if gpus else "cpu", gpus, str(work), str(answer), deadline_s)
    command = [sys.executable, "-m", "verification.child", *job.words]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            processes.end(process)
    seconds, said = time.monotonic() - began, log.read_text(errors="replace")
    if answer.exists():
        state, words = json.loads(answer.read_text())
    else:
        state, words = _unanswered(check, code, deadline_s, said)
    return Result(check.name, state, words, seconds, said[-OUTPUT:] if state == "failed" else "")


def _unanswered(check: Check, code: int | None, deadline_s: float, said: str) -> tuple[State, str]:
    """Return what became clear about a check whose process gave no answer."""
    if code is None and deadline_s < check.deadline_s:
        return "skipped", f"the time for all checks ended {deadline_s:.0f} s after its start"
    if code is None:
        return "failed", f"no result within {deadline_s:g} s: it was killed"
    end = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return "failed", first_lines(f"its process ended {end}\n{said.strip().rpartition(chr(10))[2]}")

"""A dry run in its own process, within seconds: it reads the first tasks and plays one group of empty answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile

from agentrl.env.dry_run.verdict import DryRunRequest, DryRunResult, verdict
from agentrl.errors import ConfigError

PATIENCE_S = 20.0


def dry_run(request: DryRunRequest) -> DryRunResult:
    """Read the first task of each split and play one with empty answers. Returns what the user should know.

    Raises ConfigError for what every episode of the run would meet: no tasks, a method that raises, a reward without a
    value. An environment that takes longer than PATIENCE_S is not checked, and failures of a service or of the machine
    are not faults.
    """
    command = [sys.executable, "-P", "-m", "agentrl.env.dry_run.process"]
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    with TemporaryFile("w+") as answer:  # a child would block on a pipe whose buffer is full
        with _interrupts_blocked():
            child = subprocess.Popen(
                [*command, str(answer.fileno())], stdin=subprocess.PIPE, stdout=2, pass_fds=[answer.fileno()],
                text=True, env=os.environ | {"PYTHONPATH": paths},
            )  # fmt: skip
        try:
            child.communicate(json.dumps(asdict(request), default=str), PATIENCE_S)
        except subprocess.TimeoutExpired:
            late = f"The first episode takes longer than {PATIENCE_S:g} s, so the environment was not checked."
            return DryRunResult(notes=(late,))
        finally:
            _end(child)
        answer.seek(0)
        return _read(answer.read(), child.returncode)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start child processes with SIGINT blocked, until they are ready to end silently on Ctrl-C."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _end(child: subprocess.Popen[str]) -> None:
    """Terminate the child; kill it if it does not end within 5 s."""
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _read(text: str, code: int) -> DryRunResult:
    if not text:
        raise ConfigError(f"the environment ended its process with code {code} while its first task was played")
    fields = json.loads(text)
    result = DryRunResult(fields["fault"], tuple(fields["notes"]), fields["prompt"], tuple(fields["endless"]))
    if result.fault:
        raise ConfigError(result.fault)
    return result


# --- in the child -------------------------------------------------------------------------------------------------


def main() -> None:
    """Read a DryRunRequest from stdin; write the DryRunResult to the file descriptor in argv."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    result = asyncio.run(verdict(DryRunRequest(**json.load(sys.stdin))))
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        json.dump(asdict(result), answer)
    sys.stderr.flush()
    os._exit(0)  # does not wait for threads that an author left running


if __name__ == "__main__":
    main()

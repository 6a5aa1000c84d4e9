"""A rehearsal before a run: the first tasks, and one silent group, in a process of its own and within seconds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

from agentrl.env.tryout.verdict import TryoutResult, verdict
from agentrl.errors import ConfigError

PATIENCE_S = 20.0


def try_out(
    name: str, options: dict[str, Any], splits: Sequence[str], seed: int = 0, max_turns: int = 0
) -> TryoutResult:
    """Ask for the first task of each split and play one by a model that says nothing; returns what a user should know.

    Raises ConfigError for what every episode of the run would meet: no tasks, a method that raises, a reward without a
    value. What takes longer than PATIENCE_S is left to the run, and so is what a service or the machine failed at.
    """
    order = json.dumps([name, options, list(splits), seed, max_turns], default=str)
    command = [sys.executable, "-P", "-m", "agentrl.env.tryout.process"]
    paths = os.pathsep.join(filter(None, sys.path))
    with TemporaryFile("w+") as answer:  # a pipe would hold up a child that says more than fits into it
        with _interrupts_held():
            child = subprocess.Popen(
                [*command, str(answer.fileno())], stdin=subprocess.PIPE, stdout=2, pass_fds=[answer.fileno()],
                text=True, env=os.environ | {"PYTHONPATH": paths},
            )  # fmt: skip
        try:
            child.communicate(order, PATIENCE_S)
        except subprocess.TimeoutExpired:
            late = (
                f"The first episode takes longer than {PATIENCE_S:g} s: the environment is not checked before the run."
            )
            return TryoutResult(notes=(late,))
        finally:
            _ended(child)
        answer.seek(0)
        return _read(answer.read(), child.returncode)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process that is started inside hears of no Ctrl-C before it is ready to end at one without a word."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _ended(child: subprocess.Popen[str]) -> None:
    """End it, if need be with force, giving it a moment to close what it holds."""
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _read(text: str, code: int) -> TryoutResult:
    if not text:
        raise ConfigError(f"the environment ended its process with code {code} while its first task was played")
    found = json.loads(text)
    tried = TryoutResult(found["fault"], tuple(found["notes"]), found["prompt"])
    if tried.fault:
        raise ConfigError(tried.fault)
    return tried


# --- in the child -------------------------------------------------------------------------------------------------


def main() -> None:
    """Rehearse what stdin orders; the verdict goes to the file descriptor that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    name, options, splits, seed, max_turns = json.load(sys.stdin)
    found = asyncio.run(verdict(name, options, splits, seed, max_turns))
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        json.dump(asdict(found), answer)
    sys.stderr.flush()
    os._exit(0)  # threads that an author left running keep nobody waiting


if __name__ == "__main__":
    main()

"""A dry run in its own process, within seconds: it reads the first tasks and plays one group of empty answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Thread, main_thread
from typing import NoReturn

from agentrl.env.dry_run.verdict import DryRunRequest, DryRunResult, verdict
from agentrl.env.registry import resolve
from agentrl.errors import ConfigError
from agentrl.plugins.blocking import authors_line

PATIENCE_S = 20.0
STARTING_S = 6.0
"""Time of that which the child may need before the episode begins."""
BLOCKED_S = 8.0
"""How long a line may hold the event loop before it is named."""
BEAT_S = 0.1
LOCK = Lock()
"""Held by the thread that answers."""
BLOCKING_AGENT = (
    "an agent that blocks in async def never reads the model's answer, and no other episode runs: write a plain def, "
    "which has a thread of its own, or await asyncio.to_thread(…)"
)


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
            late = f"Tasks and first episode take longer than {PATIENCE_S:g} s, so the environment was not checked."
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
    request, beats = DryRunRequest(**json.load(sys.stdin)), [time.monotonic()]
    Thread(target=_watch, args=(request, beats), daemon=True).start()
    _answer(asyncio.run(_beating(request, beats)))


async def _beating(request: DryRunRequest, beats: list[float]) -> DryRunResult:
    """Check the environment, and note the time whenever the event loop is free."""

    async def beat() -> None:
        while True:
            beats[0] = time.monotonic()
            await asyncio.sleep(BEAT_S)

    beating = asyncio.create_task(beat())
    try:
        return await verdict(request)
    finally:
        beating.cancel()


def _watch(request: DryRunRequest, beats: list[float]) -> None:
    """Answer, shortly before the parent's patience ends, if a line of the author's blocks the event loop."""
    time.sleep(PATIENCE_S - STARTING_S)
    blocked_s, line = time.monotonic() - beats[0], authors_line(main_thread())
    if blocked_s < BLOCKED_S or not line:
        return
    said = f"The event loop has been blocked for {blocked_s:.0f} s{line}"
    if resolve(request.name)._drives:
        _answer(DryRunResult(f"{said}: {BLOCKING_AGENT}."))
    _answer(DryRunResult(notes=(f"{said}, so the environment was not checked.",)))


def _answer(result: DryRunResult) -> NoReturn:
    """Write the result, once, and end the process, without waiting for threads that an author left running."""
    LOCK.acquire()
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        json.dump(asdict(result), answer)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

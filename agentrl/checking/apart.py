"""Checks in a process of their own: an environment that ends it fails the check that was running."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from tempfile import TemporaryDirectory

import msgspec

from agentrl.checking.check import SCRATCH, Result, Status, unchecked
from agentrl.checking.process import BY_NAME, Done, Estimated, Finished, Record, Refused, Request, Started
from agentrl.checking.running import GRACE_S, LOAD_S
from agentrl.errors import ConfigError

START_S = 600.0
"""Time to import the environment."""
SPARE_S = 20.0
"""Time beyond that of a check after which its process is ended."""
EXIT_S = 10.0
"""Time for a process to end by itself."""
TICK_S = 0.2
ENDED = "Raise errors instead of ending the process, and give code that may hold the interpreter a process of its own."
"""What to do if the process of the checks has ended."""
READ_BYTES = 1 << 16


def results(
    request: Request,
    command: Sequence[str],
    variables: Mapping[str, str],
    estimated: Callable[[str], None] = lambda _: None,
) -> Iterator[Result]:
    """Run checks with a command for `agentrl.checking.process` and its environment variables; yield their results.

    `estimated` is called if they take long. Raises ConfigError if there is nothing to check. A process that does not
    end with the record Done fails the check that was running, and the checks after it are not checked.
    """
    waiting = [BY_NAME[name] for name in request.checks]
    last, done = waiting[-1:], False
    with _started(request, command, variables) as checks:
        for record in checks.records():
            if isinstance(record, Refused):
                raise ConfigError(record.text)
            if isinstance(record, Estimated):
                estimated(record.text)
            if isinstance(record, Finished):
                yield Result(waiting.pop(0), record.status, record.text, record.seconds, record.remedy)
            if done := isinstance(record, Done):
                break
        ending = checks.ending()
    if done:
        return
    if not last:
        raise ConfigError(f"{request.name}: {ending}")
    first = (waiting or last)[0]
    yield Result(first, Status.FAILED, ending, remedy=ENDED)
    yield from (unchecked(check, first) for check in waiting[1:])


class _Process:
    """A process of checks, and the pipe with its records."""

    def __init__(self, child: subprocess.Popen[bytes], pipe: int) -> None:
        self._child, self._pipe = child, pipe
        self._what, self._until = "the environment was loaded", time.monotonic() + START_S
        self._is_late = False

    def records(self) -> Iterator[Record]:
        """Yield the records until the process ends, or is ended because it is late."""
        rest = b""
        while data := self._read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                record: Record = msgspec.json.decode(line, type=Record)
                self._note(record)
                yield record

    def ending(self) -> str:
        """End the process if it still runs. Returns how it ended."""
        if self._is_late:
            self._child.send_signal(signal.SIGABRT)  # faulthandler writes the lines of all threads
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(EXIT_S)
        self.end()
        code = self._child.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if self._is_late:
            how = "held the interpreter beyond every deadline (stderr shows in which line)"
        return f"the environment's process {how} while {self._what}"

    def end(self) -> None:
        """End the process, with the processes that it left in its group."""
        if self._child.poll() is None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(EXIT_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _note(self, record: Record) -> None:
        if isinstance(record, Started):
            self._what, self._until = "this check ran", time.monotonic() + record.limit_s + SPARE_S
        elif isinstance(record, Finished):
            self._what, self._until = "the next check was prepared", time.monotonic() + LOAD_S + GRACE_S + SPARE_S

    def _read(self) -> bytes:
        """Return the next bytes; none once the process has ended, although others may hold its pipe, or is late."""
        while not select.select([self._pipe], [], [], TICK_S)[0]:
            self._is_late = time.monotonic() > self._until
            if self._is_late or self._child.poll() is not None:
                return b""
        return os.read(self._pipe, READ_BYTES)


@contextmanager
def _started(request: Request, command: Sequence[str], variables: Mapping[str, str]) -> Iterator[_Process]:
    reader, writer = os.pipe()
    scratch = TemporaryDirectory(prefix="agentrl-check-", ignore_cleanup_errors=True)
    variables = {**variables, SCRATCH: scratch.name}
    try:
        child = subprocess.Popen(
            [*command, str(writer), json.dumps(asdict(request), default=str)],
            stdin=subprocess.DEVNULL, stdout=2, pass_fds=[writer], env=variables, start_new_session=True,
        )  # fmt: skip
        process = _Process(child, reader)
        os.close(writer)
        writer = -1
        try:
            yield process
        finally:
            process.end()
    finally:
        for descriptor in (reader, writer) if writer >= 0 else (reader,):
            os.close(descriptor)
        scratch.cleanup()

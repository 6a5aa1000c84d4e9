"""Guardian: the parent of an environment's process, which ends what the process leaves.

`python guardian.py DESCRIPTOR COMMAND ...` runs a command under one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PR_SET_CHILD_SUBREAPER = 36
SWEEP_S, POLL_S = 5.0, 0.01
"""How long the kernel may take to end what is left, and how often it is looked for."""


def guard(connected: int) -> None:
    """Go on in a child of this process; all that the child starts ends with it, whatever group or session it is in.

    This process closes the descriptor `connected`, waits, and ends as the child has. SIGTERM kills the child.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans below become children of this process
    if child := os.fork():
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
        os.close(connected)
        _wait_for(child)
        _sweep(child)
        _end_as(child)


def _wait_for(child: int) -> None:
    """Wait until the child has ended, and reap all others. The child keeps its pid until it is reaped, too."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and ended.si_pid != child:
        os.waitpid(ended.si_pid, 0)


def _sweep(child: int) -> None:
    """Kill all other children, then those that their ends leave, and so on."""
    ends_at = time.monotonic() + SWEEP_S
    while (left := set(_children()) - {child}) and time.monotonic() < ends_at:
        for pid in left:
            with suppress(PermissionError):  # of another user
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_S)


def _children() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                yield int(stat.parent.name)


def _end_as(child: int) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


def run(connected: int, command: list[str]) -> NoReturn:
    """Run a command until it ends or the other side of the descriptor `connected` is closed, as by a killed parent.

    This process ends with the command's exit code, and with it all that the command has started.
    """
    guard(connected)
    threading.Thread(target=_end_with, args=(connected,), daemon=True).start()
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        sys.exit(f"{command[0]} cannot be executed: {error.strerror}")
    sys.exit(code if code >= 0 else 128 - code)


def _end_with(connected: int) -> NoReturn:
    os.read(connected, 1)
    os._exit(1)


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])

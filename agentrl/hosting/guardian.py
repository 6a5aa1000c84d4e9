"""Guardian: the parent of an environment's process, which ends what the process leaves."""

from __future__ import annotations

import ctypes
import os
import signal
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

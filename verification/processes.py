"""Processes under this one, which a check may leave behind: they are killed, however they were started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
END_S = 10.0
POLL_S = 0.02


def adopt_orphans() -> None:
    """Let processes under this one whose parent ends become its children (prctl(2)), so that none is lost."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, its group, and all that is then a child of this process.

    Gives up after END_S: the kernel may not end a process that waits for a GPU.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    ends_at = time.monotonic() + END_S
    while (left := _children()) and time.monotonic() < ends_at:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_S)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found

"""Setup of the untrusted process between the fork and the program: pipes, limits, privileges."""

from __future__ import annotations

import os
import resource

from agentrl_sandbox.inside.kernel import PR_SET_DUMPABLE, prctl, reset_signals
from agentrl_sandbox.inside.wire import unpack

NO_CORE = (1, 1)  # with 0, a crash would still start the machine's core-dump handler
PENDING_SIGNALS = 1024  # and timers: the kernel counts them per user, who may have other processes too


class Cell:
    """Settings of all programs of one sandbox: the fields of the boot frame, in this order."""

    def __init__(self, payload: bytes) -> None:
        work, *numbers, environment, meters, self.rules, rooms = unpack(payload)
        self.work = work.decode()
        self.uid, self.memory_bytes, self.processes, self.file_bytes, self.open_files = map(int, numbers)
        self.rooms = [room.decode() for room in unpack(rooms)]
        self.environment = dict(entry.split("=", 1) for entry in map(bytes.decode, unpack(environment)))
        self.meters = [(limit.decode(), path.decode(), key) for limit, path, key in map(unpack, unpack(meters))]


def keep_only(fds: list[int]) -> None:
    """Move `fds` to 0, 1, 2, …, close all others, and reset the warden's signal handling."""
    spare = [os.dup2(fd, 100 + number, inheritable=False) for number, fd in enumerate(fds)]
    for number, fd in enumerate(spare):
        os.dup2(fd, number)
    os.closerange(len(spare), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    reset_signals()


def confine(cell: Cell, cpu_s: int) -> None:
    """Permanently drop what the program must not have. `cpu_s` 0 means no rlimit on CPU time."""
    os.setsid()
    _show_itself()
    _prefer_for_oom()
    if resource.getrlimit(resource.RLIMIT_CORE) not in (NO_CORE, (0, 0)):  # nobody may raise a limit of 0
        resource.setrlimit(resource.RLIMIT_CORE, NO_CORE)
    for kind, value in [
        (resource.RLIMIT_SIGPENDING, PENDING_SIGNALS),
        (resource.RLIMIT_FSIZE, cell.file_bytes),
        (resource.RLIMIT_NOFILE, cell.open_files),
        (resource.RLIMIT_AS, cell.memory_bytes),
        (resource.RLIMIT_NPROC, cell.processes),
        (resource.RLIMIT_CPU, cpu_s),
    ]:
        if value:
            _lower(kind, value)
    if cell.uid:
        os.setgroups([])
        os.setresgid(cell.uid, cell.uid, cell.uid)
        os.setresuid(cell.uid, cell.uid, cell.uid)
        _show_itself()
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(cell.environment)


def _show_itself() -> None:
    """Let the program read its own /proc, which the warden's setting and the change of user would prevent."""
    prctl(PR_SET_DUMPABLE, 1)


def enter(work: str) -> None:
    """Enter the working folder; repair it if an earlier program damaged it; OSError if one still does."""
    try:
        _make(work)
    except OSError:
        _open_again(os.path.dirname(work))
        if os.path.isdir(work) and not os.path.islink(work):
            _open_again(work)
        elif os.path.lexists(work):
            os.unlink(work)
        _make(work)


def _make(work: str) -> None:
    try:
        os.mkdir(work, 0o755)
    except FileExistsError:
        pass
    os.chdir(work)


def _open_again(folder: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        os.chmod(folder, 0o755)


def _lower(kind: int, value: int) -> None:
    """Lower a limit; the hard CPU limit is one above the soft one, so that a signal comes before the kill."""
    most = resource.getrlimit(kind)[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    hard = value + (kind == resource.RLIMIT_CPU)
    resource.setrlimit(kind, (value, hard if most == resource.RLIM_INFINITY else min(hard, most)))


def _prefer_for_oom() -> None:
    """Make the kernel kill the program rather than the warden if memory runs out."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    os.write(fd, b"1000")
    os.close(fd)

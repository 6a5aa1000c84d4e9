"""The processes of a warden: as pid 1 all others, else (as their reaper) its descendants."""

from __future__ import annotations

import os
import resource
import time

from agentrl_sandbox.inside.proc import Process, number, processes

ENDING_S = 2.0
SIGKILL = 9
MICROSECONDS = b"usage_usec"  # key in cgroup version 2; version 1 has nanoseconds without a key


class Ended:
    """A reaped child: its exit code (minus the signal that killed it), CPU time and peak memory."""

    def __init__(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        self.pid = pid
        self.exit_code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.cpu_s, self.peak_bytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


class Tree:
    """Process tree of the programs, to measure and kill them. Nothing that they do makes it raise."""

    def __init__(self, meter: tuple[str, bytes] | None = None) -> None:
        """Create a tree; `meter` is file and key of the kernel's CPU counter for the whole sandbox, if there is one."""
        self.me, self.meter = os.getpid(), meter
        self._seen_s = self._lost_s = 0.0

    def cpu_s(self, is_idle: bool = False) -> float:
        """Return the CPU time of all processes so far; only differences are meaningful. `is_idle`: none is running.

        Without a meter it is sampled: of a child that nobody waited for, only the time seen before it ended counts.
        """
        if self.meter:
            return number(*self.meter) / (1e6 if self.meter[1] == MICROSECONDS else 1e9) - _used_s(resource.RUSAGE_SELF)
        seen_s = self._sum_s(is_idle)
        if seen_s < self._seen_s:  # perhaps a child ended and was reaped during the scan
            seen_s = max(seen_s, self._sum_s(is_idle))
            self._lost_s += max(0.0, self._seen_s - seen_s)
        self._seen_s = seen_s
        return seen_s + self._lost_s

    def _sum_s(self, is_idle: bool) -> float:
        return _used_s(resource.RUSAGE_CHILDREN) + sum(each.cpu_s for each in (() if is_idle else self.running()))

    def running(self) -> list[Process]:
        """Return every process except the warden, including zombies."""
        table = processes()
        if self.me == 1:
            return [each for each in table.values() if each.pid != 1]
        return [each for each in table.values() if _descends(each, table, self.me)]

    def kill(self, spared: int = 0) -> list[Ended]:
        """Kill and reap every process except `spared` and its descendants; return our children that ended.

        If processes fork faster than they are found, `spared` is killed too.
        """
        if self.me == 1 and not spared:
            return self._kill_all()
        ended: list[Ended] = []
        until = time.monotonic() + ENDING_S
        while self._kill_once(spared):
            if time.monotonic() > until:
                return ended + (self._kill_all() if self.me == 1 else self.reap())
            ended += self.reap()
        return ended + self.reap()

    def reap(self, options: int = os.WNOHANG) -> list[Ended]:
        """Reap and return every child that has ended; with `options` 0, wait until none is left."""
        ended: list[Ended] = []
        while True:
            try:
                pid, status, usage = os.wait3(options)
            except OSError:
                return ended
            if not pid:
                return ended
            if os.WIFSTOPPED(status):  # it made us its tracer
                _kill(pid)
            else:
                ended.append(Ended(pid, status, usage))

    def _kill_all(self) -> list[Ended]:
        """As pid 1, kill all with one system call that no fork can race, then wait until they are gone."""
        _kill(-1)
        return self.reap(options=0)

    def _kill_once(self, spared: int) -> bool:
        """Send one round of kills; return False if nothing was left to kill."""
        table = processes()
        doomed = [
            each.pid
            for each in table.values()
            if each.pid not in (self.me, spared)
            and (self.me == 1 or _descends(each, table, self.me))
            and not (spared and _descends(each, table, spared))
        ]
        for pid in doomed:
            _kill(pid)
        return bool(doomed)


def _used_s(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except OSError:  # it is gone, or it changed its user
        pass


def _descends(process: Process, table: dict[int, Process], root: int) -> bool:
    parent = process.parent
    while parent and parent != root:
        if parent not in table:
            return False
        parent = table[parent].parent
    return parent == root

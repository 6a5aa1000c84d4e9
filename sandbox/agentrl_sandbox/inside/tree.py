"""The processes that a warden answers for: as pid 1 all others, else (as their reaper) its descendants."""

from __future__ import annotations

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")
ENDING_S = 2.0
SIGKILL = 9


class Entry:
    """What /proc says of one process."""

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid, self.parent = pid, int(fields[1])
        self.cpu_s = sum(map(int, fields[11:15])) / TICKS  # its own and that of the children it has waited for


class Ended:
    """A child that was reaped: its exit code (minus the signal that killed it), its CPU time and peak memory."""

    def __init__(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        self.pid, self.exit_code = pid, os.waitstatus_to_exitcode(status)
        self.cpu_s, self.peak_bytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


class Tree:
    """Counts, and kills, what the programs have started."""

    def __init__(self) -> None:
        self.me = os.getpid()

    def cpu_s(self, is_idle: bool = False) -> float:
        """CPU time of everything started so far; `is_idle`: nothing of it is running."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = () if is_idle else self.running()
        return ended.ru_utime + ended.ru_stime + sum(entry.cpu_s for entry in running)

    def running(self) -> list[Entry]:
        """Every process but the warden; zombies too."""
        table = {entry.pid: entry for entry in _table()}
        if self.me == 1:
            return [entry for entry in table.values() if entry.pid != 1]
        return [entry for entry in table.values() if self._descends(entry, table, self.me)]

    def kill(self, spared: int = 0) -> list[Ended]:
        """Kill and reap every process but `spared` and its descendants; those of our children that ended."""
        if self.me == 1 and not spared:
            return self._kill_all()
        ended, until = [], time.monotonic() + ENDING_S
        while self._kill_once(spared) and time.monotonic() < until:
            ended += self.reap()
        return ended + self.reap()

    def reap(self, options: int = os.WNOHANG) -> list[Ended]:
        """Every child that has ended; with `options` 0, wait until none is left."""
        ended = []
        try:
            while (found := os.wait3(options))[0]:
                ended.append(Ended(*found))
        except ChildProcessError:
            pass
        return ended

    def _kill_all(self) -> list[Ended]:
        """As pid 1: one system call that no fork can race, then wait until all are gone."""
        try:
            os.kill(-1, SIGKILL)
        except ProcessLookupError:
            pass
        return self.reap(options=0)

    def _kill_once(self, spared: int) -> bool:
        """False when nothing was left to kill."""
        table = {entry.pid: entry for entry in _table()}
        doomed = [entry.pid for entry in self.running() if not (spared and self._descends(entry, table, spared))]
        for pid in doomed:
            if pid != spared:
                try:
                    os.kill(pid, SIGKILL)
                except ProcessLookupError:
                    pass
        return bool(set(doomed) - {spared})

    def _descends(self, entry: Entry, table: dict[int, Entry], root: int) -> bool:
        while entry.parent and entry.parent != root:
            if entry.parent not in table:
                return False
            entry = table[entry.parent]
        return entry.parent == root


def _table() -> list[Entry]:
    entries = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
            except OSError:
                continue
            try:
                entries.append(Entry(int(name), os.read(fd, 4096)))
            except OSError:
                pass
            finally:
                os.close(fd)
    return entries

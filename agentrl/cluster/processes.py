"""Registry of the processes a run starts, with which a later command ends those that were left behind.

A process is a pid together with its host, its start time and the host's boot id: a pid alone may name another process.
A process is registered before it is used, including grandchildren that can outlive their parent.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from agentrl.errors import RunError

FILE = "processes.jsonl"


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process, distinguishable from any other with the same pid."""

    role: str
    pid: int
    started: int  # clock ticks after boot
    boot: str
    host: str = ""


def identified(role: str, pids: Iterable[int]) -> list[ProcessRecord]:
    """Return the processes of this host with these ids that have not ended."""
    table, boot, host = _table(), _boot(), this_host()
    return [ProcessRecord(role, pid, table[pid].started, boot, host) for pid in pids if pid in table]


def this_host() -> str:
    """Return the name of this host."""
    return socket.gethostname()


class ProcessRegistry:
    """The registry in one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE

    def register(self, role: str, pid: int) -> None:
        """Record a process of this host on disk, unless it has ended already."""
        for process in identified(role, [pid]):
            self.add(process)

    def add(self, process: ProcessRecord) -> None:
        """Record a process on disk."""
        # The leading newline ends a line in the middle of which the last writer was killed.
        line = f"\n{json.dumps(asdict(process))}\n".encode()
        try:
            with self._path.open("ab", buffering=0) as file:
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}. Make room, then resume the run") from error

    def registered(self) -> list[ProcessRecord]:
        """Return every process on record, in the order of registration."""
        if not self._path.exists():
            return []
        return [process for line in self._path.read_text(errors="replace").splitlines() for process in _parsed(line)]

    def leftovers(self) -> list[ProcessRecord]:
        """Return the registered processes that still run on this host and their descendants.

        This process and its ancestors are never among them.
        """
        boot, table, host = _boot(), _table(), this_host()
        ours = set(_ancestry(os.getpid(), table))
        here = [process for process in self.registered() if (process.boot, process.host or host) == (boot, host)]
        roles = {process.pid: process.role for process in here if _is(process, table) and process.pid not in ours}
        found = []
        for pid in table:
            root = next((ancestor for ancestor in _ancestry(pid, table) if ancestor in roles), None)
            if root is not None:
                role = roles[pid] if pid in roles else f"child of {roles[root]}"
                found.append(ProcessRecord(role, pid, table[pid].started, boot, host))
        return sorted(found, key=lambda process: process.started)

    def register_descendants(self) -> None:
        """Record the descendants of the registered processes, which may outlive them as orphans."""
        known = {(process.pid, process.started) for process in self.registered()}
        for process in self.leftovers():
            if (process.pid, process.started) not in known:
                self.register(process.role, process.pid)

    def end_leftovers(self, deadline_s: float) -> None:
        """End all `leftovers`: SIGTERM first, SIGKILL in the second half of the deadline.

        Raises RunError naming the processes that still run then.
        """
        ends_at = time.monotonic() + deadline_s
        running: dict[int, ProcessRecord] = {}  # by descriptor, which stays with the process when its pid is reused
        with ExitStack() as descriptors:
            for signal_number, until in ((signal.SIGTERM, ends_at - deadline_s / 2), (signal.SIGKILL, ends_at)):
                new = [process for process in self.leftovers() if process.pid not in {p.pid for p in running.values()}]
                running |= _opened(new, descriptors)
                for descriptor in running:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(descriptor, signal_number)
                _wait_for_ends(running, until)
        if running:
            names = ", ".join(f"{process.role} (pid {process.pid})" for process in running.values())
            raise RunError(f"still running {deadline_s:g} s after SIGTERM: {names}. End them, then resume")


class _Entry(NamedTuple):
    """An entry of the process table."""

    parent: int
    started: int


def _table() -> dict[int, _Entry]:
    """Return every process of this machine by pid; zombies count as ended."""
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, parent, *rest = path.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                table[int(path.parent.name)] = _Entry(int(parent), int(rest[17]))
    return table


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _is(process: ProcessRecord, table: dict[int, _Entry]) -> bool:
    return process.pid in table and table[process.pid].started == process.started


def _ancestry(pid: int, table: dict[int, _Entry]) -> Iterator[int]:
    """Yield the process, its parent, and so on."""
    while pid in table:
        yield pid
        pid = table[pid].parent


def _parsed(line: str) -> Iterator[ProcessRecord]:
    """Yield the process of a line; nothing if its writer was killed in the middle of it."""
    with suppress(json.JSONDecodeError, TypeError):
        yield ProcessRecord(**json.loads(line))


def _opened(processes: Iterable[ProcessRecord], descriptors: ExitStack) -> dict[int, ProcessRecord]:
    """Open a descriptor for each process that still is the recorded one."""
    opened = {}
    for process in processes:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            descriptors.callback(os.close, descriptor)
            if _is(process, _table()):
                opened[descriptor] = process
    return opened


def _wait_for_ends(running: dict[int, ProcessRecord], until: float) -> None:
    """Remove from `running` the processes that end before the time `until`."""
    poll = select.poll()
    for descriptor in running:
        poll.register(descriptor, select.POLLIN)
    while running and (left_s := until - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_s * 1000):
            poll.unregister(descriptor)
            del running[descriptor]

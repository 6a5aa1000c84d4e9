"""Control groups of either version, if this process may create them: they count what rlimits cannot.

Version 1: a folder under our own cgroup of every controller. Version 2: one folder under the nearest ancestor that
delegates controllers. If neither can be created, sandboxes have only rlimits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentrl_sandbox.inside.proc import number
from agentrl_sandbox.types import Limits

NAME = "agentrl"
PERIOD_US = 100_000
NEEDED = ("memory", "pids")
USEFUL = ("cpu", "cpuacct")
# Version 1: TCP and UDP buffers, which its memory limit does not count, get an additional share of it.
SOCKETS, SOCKETS_SHARE = "memory.kmem.tcp.limit_in_bytes", 8
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max", SOCKETS)  # not in every kernel
REMOVAL_S = 2.0
UNLIMITED = 1 << 60  # version 1 reports a larger number if there is no limit


@dataclass(frozen=True, slots=True)
class Meter:
    """Kernel counter of the hits of a limit, or for `cpu` of the time used."""

    limit: str
    folder: Path
    file: str
    key: str


@dataclass(frozen=True, slots=True)
class Cage:
    """The cgroups of one sandbox."""

    folders: dict[str, Path]  # by controller; in version 2 the same folder for all
    version: int

    @property
    def paths(self) -> list[str]:
        """The distinct folders."""
        return sorted({str(folder) for folder in self.folders.values()})

    def make(self, limits: Limits) -> None:
        """Create the folders and set the limits, with one extra process for the warden."""
        for path in self.paths:
            if not Path(path).parent.is_dir():  # removed in the meantime
                _homes.cache_clear()
                _homes()
            Path(path).mkdir()
        for controller, file, value in _settings(limits, self.version):
            if controller in self.folders:
                _put(self.folders[controller] / file, value, is_needed=controller in NEEDED and file not in OPTIONAL)

    def add(self, pid: int) -> None:
        """Add a process; its future children are counted too."""
        for path in self.paths:
            (Path(path) / "cgroup.procs").write_text(str(pid))

    def meters(self) -> list[Meter]:
        """Return the counters of out-of-memory kills, failed forks and CPU time of all processes."""
        memory, pids = self.folders["memory"], self.folders["pids"]
        found = [
            Meter("memory", memory, "memory.oom_control" if self.version == 1 else "memory.events", "oom_kill"),
            Meter("processes", pids, "pids.events", "max"),
        ]
        if self.version == 2:
            found.append(Meter("cpu", memory, "cpu.stat", "usage_usec"))
        elif "cpuacct" in self.folders:
            found.append(Meter("cpu", self.folders["cpuacct"], "cpuacct.usage", ""))
        return found

    def counts_sockets(self) -> bool:
        """Return whether it limits TCP and UDP buffers too; known once the folders exist."""
        if self.version == 2:
            return True
        with suppress(OSError, ValueError):
            return int((self.folders["memory"] / SOCKETS).read_text()) < UNLIMITED
        return False

    def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed one of its processes for lack of memory."""
        meter = self.meters()[0]
        return number(str(meter.folder / meter.file), meter.key.encode()) > 0


def cage(lease_id: str) -> Cage | None:
    """Return the cgroups for a sandbox, not yet created; None if this process cannot create any."""
    homes = _homes()
    if homes is None:
        return None
    version, folders = homes
    return Cage({controller: folder / lease_id for controller, folder in folders.items()}, version)


def describe() -> str:
    """Return what enforces the limits of memory and processes here."""
    homes = _homes()
    return f"cgroup v{homes[0]} ({', '.join(sorted(homes[1]))})" if homes else "rlimits (no cgroups available here)"


def try_remove(paths: Iterable[str]) -> list[str]:
    """Remove these cgroups; kill the processes of those that are not empty, and return them."""
    left = []
    for path in paths:
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            kill(path)
            left.append(path)
    return left


def remove(paths: Iterable[str]) -> None:
    """Kill everything in these cgroups and remove them; OSError if that takes too long."""
    until, left = time.monotonic() + REMOVAL_S, list(paths)
    while left := try_remove(left):
        if time.monotonic() > until:
            raise OSError(f"cannot remove the control groups {', '.join(left)}: their processes do not end")
        time.sleep(0.001)


def remove_homes(paths: Iterable[str]) -> None:
    """Remove the parent folders of these cgroups that are empty."""
    for home in {Path(path).parent for path in paths}:
        with suppress(OSError):
            home.rmdir()
    _homes.cache_clear()


def kill(path: str) -> None:
    """Send SIGKILL to every process in a cgroup."""
    with suppress(OSError, ValueError):
        for pid in (Path(path) / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@cache
def _homes() -> tuple[int, dict[str, Path]] | None:
    """Return the version and the folder for our sandboxes in every controller."""
    return find_homes(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())


def find_homes(mountinfo: str, membership: str) -> tuple[int, dict[str, Path]] | None:
    """Return the version and the folders, given the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    mounts = _mounts(mountinfo)
    own: dict[str, str] = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        own |= {name or "unified": path for name in controllers.split(",")}
    first = {name: _home_v1(mounts[name], own[name]) for name in (*NEEDED, *USEFUL) if name in mounts and name in own}
    found = {name: folder for name, folder in first.items() if folder}
    if set(NEEDED) <= set(found):
        return 1, found
    second = _home_v2(mounts["unified"], own.get("unified", "/")) if "unified" in mounts else None
    return (2, second) if second else None


def _mounts(mountinfo: str) -> dict[str, Path]:
    """Return the mount points of the controllers of version 1 and of version 2 (`unified`)."""
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        where = Path(left.split(" ")[4])
        if kind == "cgroup2":
            found["unified"] = where
        elif kind == "cgroup":
            found |= {name: where for name in options.split(",") if name in (*NEEDED, *USEFUL)}
    return found


def _home_v1(mount: Path, own: str) -> Path | None:
    """Create a folder below our own cgroup, or below the mount if a container hides our own."""
    parent = mount / own.lstrip("/")
    home = (parent if parent.is_dir() else mount) / NAME
    try:
        home.mkdir(exist_ok=True)
    except OSError:
        return None
    return home if os.access(home, os.W_OK) else None


def _home_v2(mount: Path, own: str) -> dict[str, Path] | None:
    """Create a folder below the nearest of our cgroup and its ancestors that delegates memory and pids."""
    here = mount / own.lstrip("/")
    for folder in [here, *here.parents]:
        if mount not in (folder, *folder.parents):
            return None
        home = folder / NAME
        with suppress(OSError):
            home.mkdir(exist_ok=True)
            for level in (folder, home):
                for controller in (*NEEDED, "cpu"):
                    _put(level / "cgroup.subtree_control", f"+{controller}", is_needed=False)
            delegated = (home / "cgroup.subtree_control").read_text().split()
            if set(NEEDED) <= set(delegated):
                return {controller: home for controller in delegated if controller in (*NEEDED, "cpu")}
            home.rmdir()
    return None


def _settings(limits: Limits, version: int) -> list[tuple[str, str, str]]:
    """Return (controller, file, value) of every limit."""
    memory, processes, quota = str(limits.memory_bytes), str(limits.processes + 1), str(int(limits.cpus * PERIOD_US))
    if version == 1:
        return [
            ("memory", "memory.limit_in_bytes", memory),
            ("memory", "memory.memsw.limit_in_bytes", memory),
            ("memory", SOCKETS, str(limits.memory_bytes // SOCKETS_SHARE)),
            ("pids", "pids.max", processes),
            ("cpu", "cpu.cfs_period_us", str(PERIOD_US)),
            ("cpu", "cpu.cfs_quota_us", quota),
        ]
    return [
        ("memory", "memory.max", memory),
        ("memory", "memory.swap.max", "0"),
        ("pids", "pids.max", processes),
        ("cpu", "cpu.max", f"{quota} {PERIOD_US}"),
    ]


def _put(file: Path, value: str, is_needed: bool) -> None:
    """Write a setting; the kernel may lack one that is not needed."""
    try:
        file.write_text(value)
    except OSError:
        if is_needed:
            raise

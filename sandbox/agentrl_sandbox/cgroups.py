"""Control groups of either version, as far as this process may make them: they count what rlimits cannot.

Version 1: a folder under our own cgroup of each controller. Version 2: one folder under the nearest ancestor that lets
its children have controllers. Where neither can be made, sandboxes have rlimits only.
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
# Version 1: the buffers of TCP and UDP, which its memory limit does not count; they get a share of it on top.
SOCKETS, SOCKETS_SHARE = "memory.kmem.tcp.limit_in_bytes", 8
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max", SOCKETS)  # not in every kernel
REMOVAL_S = 2.0
UNLIMITED = 1 << 60  # version 1 writes a number beyond it where there is no limit


@dataclass(frozen=True, slots=True)
class Meter:
    """A counter of the kernel's: how often a limit was hit, or for `cpu` the time used so far."""

    limit: str
    folder: Path
    file: str
    key: str


@dataclass(frozen=True, slots=True)
class Cage:
    """The cgroups of one sandbox."""

    folders: dict[str, Path]  # by controller; in version 2 the same one for each
    version: int

    @property
    def paths(self) -> list[str]:
        """Each folder once."""
        return sorted({str(folder) for folder in self.folders.values()})

    def make(self, limits: Limits) -> None:
        """Make the folders and set the limits; one process more for the warden."""
        for path in self.paths:
            if not Path(path).parent.is_dir():  # somebody has cleaned up
                _homes.cache_clear()
                _homes()
            Path(path).mkdir()
        for controller, file, value in _settings(limits, self.version):
            if controller in self.folders:
                _put(self.folders[controller] / file, value, is_needed=controller in NEEDED and file not in OPTIONAL)

    def add(self, pid: int) -> None:
        """Put a process in; what it forks from now on is counted too."""
        for path in self.paths:
            (Path(path) / "cgroup.procs").write_text(str(pid))

    def meters(self) -> list[Meter]:
        """Where the kernel counts kills for want of memory, refused forks, and the time of all processes."""
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
        """Return whether it limits the buffers of TCP and UDP too; known once it is made."""
        if self.version == 2:
            return True
        with suppress(OSError, ValueError):
            return int((self.folders["memory"] / SOCKETS).read_text()) < UNLIMITED
        return False

    def is_out_of_memory(self) -> bool:
        """Return whether a process in it was killed for want of memory."""
        meter = self.meters()[0]
        return number(str(meter.folder / meter.file), meter.key.encode()) > 0


def cage(lease_id: str) -> Cage | None:
    """Where the cgroups of a sandbox would be; None where this process cannot make any."""
    homes = _homes()
    if homes is None:
        return None
    version, folders = homes
    return Cage({controller: folder / lease_id for controller, folder in folders.items()}, version)


def describe() -> str:
    """Who enforces memory and processes here."""
    homes = _homes()
    return f"cgroup v{homes[0]} ({', '.join(sorted(homes[1]))})" if homes else "rlimits (no cgroup can be made here)"


def try_remove(paths: Iterable[str]) -> list[str]:
    """Remove these cgroups; those that still hold a process have it killed, and are returned."""
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
    """Kill whatever is left in these cgroups and remove them; OSError when that does not help in time."""
    until, left = time.monotonic() + REMOVAL_S, list(paths)
    while left := try_remove(left):
        if time.monotonic() > until:
            raise OSError(f"cannot remove the control groups {', '.join(left)}: something in them does not end")
        time.sleep(0.001)


def remove_homes(paths: Iterable[str]) -> None:
    """Remove the folders that held these cgroups, where nothing is left in them."""
    for home in {Path(path).parent for path in paths}:
        with suppress(OSError):
            home.rmdir()
    _homes.cache_clear()


def kill(path: str) -> None:
    """SIGKILL for every process in a cgroup."""
    with suppress(OSError, ValueError):
        for pid in (Path(path) / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@cache
def _homes() -> tuple[int, dict[str, Path]] | None:
    """Return the version, and a folder for our sandboxes in each controller."""
    return find_homes(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())


def find_homes(mountinfo: str, membership: str) -> tuple[int, dict[str, Path]] | None:
    """As `_homes`, from the texts of /proc/self/mountinfo and /proc/self/cgroup."""
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
    """Where each controller of version 1, and the tree of version 2 (`unified`), is mounted."""
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
    """Return a folder below our own cgroup, or below the mount where a container does not show our own."""
    parent = mount / own.lstrip("/")
    home = (parent if parent.is_dir() else mount) / NAME
    try:
        home.mkdir(exist_ok=True)
    except OSError:
        return None
    return home if os.access(home, os.W_OK) else None


def _home_v2(mount: Path, own: str) -> dict[str, Path] | None:
    """Below the nearest of our own cgroup and its ancestors that gives its children memory and pids."""
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
            given = (home / "cgroup.subtree_control").read_text().split()
            if set(NEEDED) <= set(given):
                return {controller: home for controller in given if controller in (*NEEDED, "cpu")}
            home.rmdir()
    return None


def _settings(limits: Limits, version: int) -> list[tuple[str, str, str]]:
    """(controller, file, value) of every limit."""
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
    """Write a setting; one that is not needed may be missing in this kernel."""
    try:
        file.write_text(value)
    except OSError:
        if is_needed:
            raise

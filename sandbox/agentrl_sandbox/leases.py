"""Leases: a sandbox's record, written before the sandbox is created and deleted after it is removed.

A lease is one small file in a folder that all processes of this user share. Its owner is a process (pid, start time,
boot, pid namespace). A lease whose owner is gone is an orphan, and `gc.collect` removes its sandbox.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl_sandbox.errors import SandboxError
from agentrl_sandbox.inside.proc import process

VARIABLE = "AGENTRL_SANDBOX_DIR"
MARK = "AGENTRL_LEASE"  # environment variable with the lease id in the processes of a sandbox
ID = re.compile(rb"(?:\A|[\0=])(agentrl-[0-9a-f]{16})(?=\0|\Z)")
SUFFIX = ".lease"
SCAN_S = 0.002


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, distinguishable from others that had or will have its pid."""

    pid: int
    started: int  # clock ticks after boot
    boot: str
    namespace: str

    def is_gone(self) -> bool:
        """Return whether it is known to have ended; processes of another pid namespace cannot be checked."""
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and _started(self.pid) != self.started


@dataclass(frozen=True, slots=True)
class Lease:
    """One sandbox: its owner and the location of its parts."""

    id: str
    backend: str
    owner: Owner
    cgroups: tuple[str, ...] = ()
    docker: str = ""  # the address of the engine

    @property
    def work(self) -> Path:
        """The working folder, if the backend needs one on the host."""
        return folder() / "work" / self.id

    @property
    def packages(self) -> Path:
        """The folder of packages, if the backend needs one on the host."""
        return folder() / "packages" / self.id


def new_id() -> str:
    """Return a unique name for a sandbox."""
    return f"agentrl-{secrets.token_hex(8)}"


def write(lease: Lease) -> Lease:
    """Record a lease."""
    path = folder() / f"{lease.id}{SUFFIX}"
    partial = path.with_suffix(".new")
    try:
        partial.write_text(json.dumps(asdict(lease)))
        partial.rename(path)
    except OSError as error:
        raise SandboxError(f"cannot write the lease {path}: {error.strerror}. Free space, or set {VARIABLE}") from error
    return lease


def strike(lease: Lease) -> None:
    """Delete the record and the folders of a lease whose sandbox is gone."""
    for folder_ in (lease.work, lease.packages):
        if folder_.is_dir():
            _remove(folder_)
    (folder() / f"{lease.id}{SUFFIX}").unlink(missing_ok=True)


def _remove(top: Path) -> None:
    """Remove a folder that programs have filled, level by level: its paths may be longer than the system allows."""
    is_progressing = True
    while is_progressing:
        is_progressing = False
        with suppress(OSError):
            top.chmod(0o700)
            for path in list(top.iterdir()):
                is_progressing |= _dissolve(path, top)
    with suppress(OSError):
        top.rmdir()


def _dissolve(path: Path, top: Path) -> bool:
    """Remove a file, or a folder after moving its content to `top`; return False if that fails."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return True
        path.chmod(0o700)
        for inner in list(path.iterdir()):
            inner.rename(top / secrets.token_hex(8))
        path.rmdir()
    except OSError:
        return False
    return True


def recorded() -> Iterator[Lease]:
    """Yield every recorded lease."""
    for path in sorted(folder().glob(f"*{SUFFIX}")):
        with suppress(FileNotFoundError, json.JSONDecodeError, TypeError, KeyError):
            fields = json.loads(path.read_text())
            fields["cgroups"] = tuple(fields["cgroups"])
            yield Lease(**fields | {"owner": Owner(**fields["owner"])})


def me() -> Owner:
    """Return this process as an owner."""
    pid = os.getpid()
    return Owner(pid, _started(pid) or 0, _boot(), _namespace())


def folder() -> Path:
    """Return the folder of leases; create it, private to this user, if it is missing."""
    parent = os.environ.get(VARIABLE) or os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(parent) / f"agentrl-sandbox-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True, parents=True)
        status = path.lstat()
    except OSError as error:
        raise SandboxError(f"cannot create the folder of leases {path}: {error.strerror}. Set {VARIABLE}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SandboxError(f"the folder of leases {path} belongs to another user. Remove it, or set {VARIABLE}")
    return path


def marked() -> dict[str, list[int]]:
    """Return the processes of every lease, whose id is on their command line or in their environment."""
    found: dict[str, list[int]] = {}
    for folder_ in Path("/proc").glob("[0-9]*"):
        text = b"".join(_read(folder_ / name) for name in ("cmdline", "environ"))
        for lease_id in set(ID.findall(text)):
            found.setdefault(lease_id.decode(), []).append(int(folder_.name))
    return found


def kill_marked(ids: Container[str], within_s: float) -> Counter[str]:
    """Kill the processes of these leases until none is left, since they may start others; return the counts.

    Raises OSError if some do not end in time.
    """
    killed: dict[int, tuple[str, int]] = {}  # lease and start time; a dying process loses its mark before its files
    until = time.monotonic() + within_s
    while alive := _marked_alive(ids) | {pid: kept for pid, kept in killed.items() if _started(pid) == kept[1]}:
        if time.monotonic() > until:
            raise OSError(f"these processes do not end: {', '.join(map(str, alive))}")
        killed |= alive
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SCAN_S)
    return Counter(name for name, _ in killed.values())


def _marked_alive(ids: Container[str]) -> dict[int, tuple[str, int]]:
    """Return lease and start time of every running process of these leases."""
    pids = [(pid, name) for name, pids in marked().items() if name in ids for pid in pids]
    return {pid: (name, started) for pid, name in pids if (started := _started(pid)) is not None}


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def _started(pid: int) -> int | None:
    """Return the start time of a process; None if it is not running."""
    found = process(pid)
    return None if found is None or found.state in (b"Z", b"X") else found.started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())

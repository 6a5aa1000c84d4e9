"""`bubblewrap`: new namespaces around a warden that is their first process.

Always enforced: no network; a read-only file system that contains only /usr and the interpreter without its
site-packages; a tmpfs of `disk_bytes` in /tmp (SHARED_BYTES in /dev/shm); no terminals, capabilities or new privileges;
seccomp (x86_64, aarch64). TCP and UDP work within the sandbox if a control group limits their buffers. As root,
programs get a user id that nothing else on the machine uses; otherwise their own user namespace. Memory, processes and
CPU are limited by cgroups if possible; else memory by address space per process, processes by RLIMIT_NPROC, and the
CPU share not at all.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from agentrl_sandbox import boot, cgroups, leases, seccomp
from agentrl_sandbox.cgroups import Cage
from agentrl_sandbox.errors import PackagesError, UnavailableError
from agentrl_sandbox.host import HostProcess, add_to_cage, raise_sandbox
from agentrl_sandbox.inside.child import NO_CORE
from agentrl_sandbox.leases import Lease
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.packages import FOLDER, paths
from agentrl_sandbox.types import Limits

WORK = "/tmp/work"
METERS = "/run/meters"
HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
SHARED_BYTES = 8 << 20
PACKAGE_DATABASE = Path("/usr/lib/sysimage")  # rpm's, which waits for locks that programs could hold
BACKSTOP = 8  # RLIMIT_NPROC is this much above the cgroup's limit, because only the cgroup reports hits
FIRST_UID = 1 << 30
PROBE_S = 20.0
INSTALL = "Install it (apt-get install bubblewrap; version 0.7 or later)"
ALLOW = (
    "Allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 where AppArmor refuses them; "
    "in Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined), or choose another backend"
)


class BubblewrapBackend:
    """Backend of `bwrap` sandboxes; UnavailableError if bwrap is missing or may not create namespaces."""

    name = "bubblewrap"

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        if reason := missing():
            raise UnavailableError(f"bubblewrap: {reason}")
        self._packages = tuple(_shown(paths(packages)))

    def describe(self) -> str:
        """Describe what enforces which limits here."""
        user = "a separate user id per sandbox" if _is_root() else "a user namespace"
        calls = "seccomp" if seccomp.program() else "no seccomp filter for this processor"
        return f"namespaces, {user}, {calls}; memory and processes by {cgroups.describe()}"

    async def create(self, limits: Limits) -> OrderedSandbox:
        """Start a warden as the first process of new namespaces."""
        lease_id = leases.new_id()
        cage = cgroups.cage(lease_id)
        lease = Lease(lease_id, self.name, leases.me(), tuple(cage.paths) if cage else ())
        info = _in_memory(b"")  # bwrap writes the pid of the first process here

        async def begin(process: HostProcess) -> None:
            await boot.load(process.channel, is_compiled=True)
            warden = json.loads(os.pread(info, 4096, 0))["child-pid"]
            if resource.prlimit(warden, resource.RLIMIT_CORE)[1]:  # not a limit of 0, which nobody may raise
                resource.prlimit(warden, resource.RLIMIT_CORE, NO_CORE)  # the filter forbids this inside
            if cage:
                await add_to_cage(cage, warden)
            await boot.begin(process.channel, _setup(limits, cage, bool(self._packages)))

        def spawn() -> HostProcess:
            return _spawn(lease, _walls(limits, cage, self._packages), cage, info)

        try:
            return await raise_sandbox(lease, cage, limits, spawn, begin)
        finally:
            os.close(info)

    async def close(self) -> None:
        """Nothing is shared."""


@cache
def missing() -> str:
    """Return why sandboxes cannot be created here and how to fix it; "" if a test run succeeds."""
    if not sys.platform.startswith("linux") or shutil.which("bwrap") is None:
        return f"bwrap is not on the PATH. {INSTALL}"
    if _is_root() and (path := _private_path()):
        return f"programs could not read the interpreter, because {path} is private. chmod -R o+rX {sys.base_prefix}"
    words = [*_walls(Limits(), None), *_privileges(), "true"]
    try:
        probe = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run ({error}). {INSTALL}"
    if probe.returncode == 0:
        return ""
    return f"{probe.stderr.strip()}. {INSTALL if 'Unknown option' in probe.stderr else ALLOW}"


def _private_path() -> str:
    """Return the first path of the interpreter and its library that other users cannot access; "" if there is none."""
    library, prefix = Path(os.__file__).resolve(), Path(sys.base_prefix).resolve()
    for path in (library, *library.parents, Path(boot.interpreter())):
        if path.is_relative_to(prefix) and path.stat().st_mode & 0o4 == 0:
            return str(path)
    return ""


def _spawn(lease: Lease, walls: list[str], cage: Cage | None, info: int) -> HostProcess:
    """Start bwrap, which writes the pid of the first process to the file `info` before that runs.

    `info` is not a pipe: if its reader were killed, bwrap would die and leave its child waiting forever.
    """
    hosts = _in_memory(HOSTS)
    words = [*walls, "--perms", "0444", "--file", str(hosts), "/etc/hosts", "--remount-ro", "/"]
    words += [*_privileges(), "--info-fd", str(info)]
    files = [info, hosts]
    program = seccomp.program(has_internet=cage is not None and cage.counts_sockets())
    if program is not None:
        files.append(_in_memory(program))
        words += ["--seccomp", str(files[-1])]
    try:
        return HostProcess(lease, [*words, "--", *boot.command(boot.interpreter(), lease.id)], cage, files)
    finally:
        for file in files[1:]:
            os.close(file)


def _setup(limits: Limits, cage: Cage | None, has_packages: bool) -> boot.Setup:
    meters = (
        [(meter.limit, f"{METERS}/{meter.limit}/{meter.file}", meter.key) for meter in cage.meters()] if cage else []
    )
    return boot.Setup(
        work=WORK,
        path=f"{Path(boot.interpreter()).parent}:/usr/local/bin:/usr/bin:/bin",
        limits=limits,
        uid=FIRST_UID + secrets.randbelow(FIRST_UID) if _is_root() else 0,
        has_memory_cgroup=cage is not None,
        processes=limits.processes + (BACKSTOP if cage else 0),
        meters=tuple(meters),
        packages=FOLDER if has_packages else "",
        rooms=boot.ROOMS,
    )


def _walls(limits: Limits, cage: Cage | None, packages: tuple[str, ...] = ()) -> list[str]:
    """Return the options for the namespaces and the file system, whose root is still writable."""
    words = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    words += ["--hostname", "sandbox", "--as-pid-1", "--new-session", "--clearenv"]
    words += [word for name, value in boot.SAME.items() for word in ("--setenv", name, value)]
    words += [*_system(), *packages, "--proc", "/proc", *_devices(), "--perms", "0755", "--dir", "/etc"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        words += ["--ro-bind-try", path, path]
    words += ["--perms", "1777", "--size", str(SHARED_BYTES), "--tmpfs", "/dev/shm"]
    words += ["--perms", "1777", "--size", str(limits.disk_bytes), "--tmpfs", "/tmp"]
    words += ["--perms", "0700", "--dir", METERS]
    for meter in cage.meters() if cage else ():
        words += ["--ro-bind", str(meter.folder), f"{METERS}/{meter.limit}"]
    return [*words, "--remount-ro", "/dev"]


def _devices() -> Iterator[str]:
    """Yield the options of a /dev without terminals, since the whole machine has only a few thousand."""
    yield from ("--perms", "0755", "--tmpfs", "/dev")
    for name in ("null", "zero", "full", "random", "urandom"):
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        yield from ("--symlink", f"/proc/self/fd{target}", f"/dev/{name}")


@cache
def _system() -> tuple[str, ...]:
    """Return the options that show the system's programs and libraries, and the interpreter if it is elsewhere."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        for folder in [*prefix.parents][-2::-1]:  # by default bwrap creates them for root only
            words += ["--perms", "0755", "--dir", str(folder)]
        words += ["--ro-bind", str(prefix), str(prefix)]
    for folder in [*_site_packages(), PACKAGE_DATABASE]:
        if folder.is_dir() and (folder.is_relative_to("/usr") or folder.is_relative_to(prefix)):
            words += ["--perms", "0755", "--tmpfs", str(folder), "--remount-ro", str(folder)]
    return tuple(words)


def _site_packages() -> list[Path]:
    """Return the folders to hide, the interpreter's and the virtual environment's, which may contain agentrl."""
    return sorted({Path(path).resolve() for path in site.getsitepackages([sys.base_prefix, sys.prefix])})


def _shown(packages: dict[str, Path]) -> Iterator[str]:
    """Yield the options that show packages below FOLDER; PackagesError if programs could not read one."""
    made = set[str]()
    for name, path in packages.items():
        if _is_root() and path.stat().st_mode & 0o4 == 0:
            raise PackagesError(f"bubblewrap: programs could not read {path}, which is private. chmod -R o+rX {path}")
        target = Path(FOLDER, name)
        for folder in [*target.parents][-2::-1]:
            if str(folder) not in made:  # by default bwrap creates it for root only
                made.add(str(folder))
                yield from ("--perms", "0755", "--dir", str(folder))
        yield from ("--ro-bind", str(path), str(target))


def _privileges() -> list[str]:
    """Return the options for privileges: as root those to change the user and to kill, else a user namespace."""
    if not _is_root():
        return ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    return [
        "--cap-drop",
        "ALL",
        *(word for name in ("SETUID", "SETGID", "KILL") for word in ("--cap-add", f"CAP_{name}")),
    ]


def _is_root() -> bool:
    """True if this process can become the users of sandboxes; the root of a user namespace with few ids cannot."""
    return os.geteuid() == 0 and _maps(range(FIRST_UID, 2 * FIRST_UID))


def _maps(ids: range) -> bool:
    """Return whether the user namespace of this process has these user ids."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    parts = ((int(first), int(count)) for first, _, count in map(str.split, lines))
    return any(first <= ids.start and ids.stop <= first + count for first, count in parts)


def _in_memory(content: bytes) -> int:
    """Return a file descriptor from which `content` can be read."""
    fd = os.memfd_create("sandbox")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd

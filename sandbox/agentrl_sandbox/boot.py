"""Boot of a sandbox in a started process: send the warden's code and its setup, then wait until it is ready."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agentrl_sandbox.channel import Channel
from agentrl_sandbox.errors import LostError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.leases import MARK
from agentrl_sandbox.payload import BOOTSTRAP, warden_code
from agentrl_sandbox.types import Limits

START_S = 30.0
SAME = {"PYTHONHASHSEED": "0"}
"""Environment of every interpreter: sets of strings have the same order in every sandbox and every run."""

ENVIRONMENT = {"LANG": "C.UTF-8", "TMPDIR": "/tmp", "USER": "sandbox"} | SAME

ROOMS = ("/tmp", "/dev/shm")
"""The writable folders of a sandbox with its own file systems."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For OpenBLAS, MKL and OpenMP, which start one thread per core and would hit the process limit."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings of one warden that differ between backends."""

    work: str
    path: str
    limits: Limits
    mark: str = ""
    uid: int = 0
    has_memory_cgroup: bool = False
    processes: int = 0
    meters: tuple[tuple[str, str, str], ...] = field(default=())
    rules: bytes = b""
    """Seccomp filter that the warden installs for itself and all programs, if the backend cannot."""
    packages: str = ""
    """Folder in the sandbox with the packages that programs may import; "" if there are none."""
    rooms: tuple[str, ...] = ()
    """Private folders that programs can write to; empty means only the working folder."""

    def frame(self) -> bytes:
        """Return the boot frame, which `inside.child.Cell` parses."""
        limits = self.limits
        environment = ENVIRONMENT | {"PATH": self.path, "HOME": self.work}
        environment |= {MARK: self.mark} if self.mark else {}
        environment |= {"PYTHONPATH": self.packages} | ONE_THREAD if self.packages else {}
        memory = 0 if self.has_memory_cgroup else limits.memory_bytes
        return wire.frame(
            wire.BOOT,
            wire.pack(
                self.work,
                self.uid,
                memory,
                self.processes,
                limits.disk_bytes,
                limits.open_files,
                wire.pack(*(f"{name}={value}" for name, value in environment.items())),
                wire.pack(*(wire.pack(*meter) for meter in self.meters)),
                self.rules,
                wire.pack(*(self.rooms or (self.work,))),
            ),
        )


@cache
def interpreter() -> str:
    """Return the base interpreter, not the virtual environment's: programs get only the standard library."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(sys.base_prefix) / "bin" / name
    return str(path.resolve() if path.exists() else Path(sys.executable).resolve())


def command(python: str, lease_id: str) -> list[str]:
    """Return the command line of a warden: no site-packages, its channel on stdin and stdout, and the lease id.

    Isolated as with `-I`, except that the environment is kept, which holds only `SAME`.
    """
    return [python, "-P", "-s", "-S", "-B", "-X", "utf8", "-c", BOOTSTRAP, lease_id]


async def load(channel: Channel, is_compiled: bool) -> None:
    """Send the warden's code and wait until it is loaded, so that the process of the warden exists."""
    await _ask(channel, warden_code(is_compiled), wire.LOADED)


async def begin(channel: Channel, setup: Setup) -> None:
    """Send the setup to the warden and wait until it accepts orders."""
    await _ask(channel, setup.frame(), wire.READY)


async def _ask(channel: Channel, data: bytes, expected: bytes) -> None:
    try:
        async with asyncio.timeout(START_S):
            await channel.send(data)
            kind, _ = await channel.receive()
    except TimeoutError:
        raise LostError(f"a sandbox was not ready after {START_S} s") from None
    if kind != expected:
        raise LostError(f"a sandbox began with a frame of kind {kind!r}")

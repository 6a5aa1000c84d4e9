"""From a started process to a sandbox: send the warden, tell it what holds, wait until it is ready."""

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
"""What every interpreter is started with: a set of strings has one order, in every sandbox and every run."""

ENVIRONMENT = {"LANG": "C.UTF-8", "TMPDIR": "/tmp", "USER": "sandbox"} | SAME

ROOMS = ("/tmp", "/dev/shm")
"""What is writable in a sandbox with file systems of its own."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For OpenBLAS, MKL and OpenMP, which would start a thread for every core, against the limit of processes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the warden of one sandbox is told; the fields that the backends differ in."""

    work: str
    path: str
    limits: Limits
    mark: str = ""
    uid: int = 0
    has_memory_cgroup: bool = False
    processes: int = 0
    meters: tuple[tuple[str, str, str], ...] = field(default=())
    rules: bytes = b""
    """A seccomp filter for the warden to install, for itself and all programs, where the backend cannot."""
    packages: str = ""
    """The folder in the sandbox where the packages are that programs may import; "" where there are none."""
    rooms: tuple[str, ...] = ()
    """The folders that programs can write to and nobody else has; the working folder alone where none is named."""

    def frame(self) -> bytes:
        """Return the boot frame; see `inside.child.Cell` for the other side."""
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
    """The Python that we run on, not the virtual environment's: programs get the standard library and no more."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(sys.base_prefix) / "bin" / name
    return str(path.resolve() if path.exists() else Path(sys.executable).resolve())


def command(python: str, lease_id: str) -> list[str]:
    """Return the command line of a warden: without site-packages, its channel on stdin and stdout; and its mark.

    Isolated as by `-I`, but for the environment, which has nothing but `SAME`.
    """
    return [python, "-P", "-s", "-S", "-B", "-X", "utf8", "-c", BOOTSTRAP, lease_id]


async def load(channel: Channel, is_compiled: bool) -> None:
    """Send the warden's code; returns when it has been loaded, and so the process exists that will be the warden."""
    await _ask(channel, warden_code(is_compiled), wire.LOADED)


async def begin(channel: Channel, setup: Setup) -> None:
    """Tell the warden what holds; returns when it takes orders."""
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

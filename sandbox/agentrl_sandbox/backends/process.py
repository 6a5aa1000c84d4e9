"""`process`: a child process under rlimits. This is no security boundary: for programs that you trust, and for tests.

Enforced: wall time, CPU time, output, file size, open files; memory and processes by cgroups where they can be made,
else memory by address space for each process and processes not at all. Everything a program leaves behind is killed.
Not enforced: anything else. The program reads and writes what you can read and write, and reaches the network.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from agentrl_sandbox import boot, cgroups, leases
from agentrl_sandbox.cgroups import Cage
from agentrl_sandbox.host import HostProcess, add_to_cage, raise_sandbox
from agentrl_sandbox.leases import Lease
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.packages import paths
from agentrl_sandbox.types import Limits

WARNING = "sandbox backend 'process' is NO security boundary: programs can read, write and reach whatever you can"


class InsecureSandboxWarning(UserWarning):
    """Programs run without a wall between them and this machine."""


class ProcessBackend:
    """Sandboxes that are child processes; says at its making that it protects nothing."""

    name = "process"

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        warnings.warn(WARNING, InsecureSandboxWarning, stacklevel=2)
        self._packages = paths(packages)

    def describe(self) -> str:
        """What enforces which limits here."""
        return f"no security boundary; memory and processes by {cgroups.describe()}"

    async def create(self, limits: Limits) -> OrderedSandbox:
        """Return a warden in a working folder of its own."""
        lease_id = leases.new_id()
        cage = cgroups.cage(lease_id)
        lease = Lease(lease_id, self.name, leases.me(), tuple(cage.paths) if cage else ())
        python = boot.interpreter()

        def spawn() -> HostProcess:
            lease.work.mkdir(parents=True)
            _link(self._packages, lease.packages)
            return HostProcess(lease, boot.command(python, lease_id), cage)

        async def begin(process: HostProcess) -> None:
            await boot.load(process.channel, is_compiled=True)
            if cage:
                await add_to_cage(cage, process.pid)
            await boot.begin(process.channel, _setup(lease, python, limits, cage, bool(self._packages)))

        return await raise_sandbox(lease, cage, limits, spawn, begin)

    async def close(self) -> None:
        """Nothing is shared."""


def _link(packages: dict[str, Path], folder: Path) -> None:
    """A folder through which these packages can be imported, and nothing beside them."""
    for place, path in packages.items():
        link = folder / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def _setup(lease: Lease, python: str, limits: Limits, cage: Cage | None, has_packages: bool) -> boot.Setup:
    meters = [(meter.limit, str(meter.folder / meter.file), meter.key) for meter in cage.meters()] if cage else []
    path = f"{Path(python).parent}{os.pathsep}{os.defpath}"
    return boot.Setup(
        str(lease.work),
        path,
        limits,
        lease.id,
        has_memory_cgroup=cage is not None,
        meters=tuple(meters),
        packages=str(lease.packages) if has_packages else "",
    )

"""`process`: a child process under rlimits. No security boundary: only for trusted programs and for tests.

Enforced: wall time, CPU time, output, file size, open files; memory and processes by cgroups if possible, else memory
by address space per process and processes not at all. Processes that a program leaves behind are killed.
Not enforced: anything else. Programs can read and write whatever you can, and reach the network.
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
    """Programs run without isolation from this machine."""


class ProcessBackend:
    """Backend of child processes; warns when it is created that it protects nothing."""

    name = "process"

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        warnings.warn(WARNING, InsecureSandboxWarning, stacklevel=2)
        self._packages = paths(packages)

    def describe(self) -> str:
        """Describe what enforces which limits here."""
        return f"no security boundary; memory and processes by {cgroups.describe()}"

    async def create(self, limits: Limits) -> OrderedSandbox:
        """Start a warden in its own working folder."""
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
    """Fill a folder with links to these packages only."""
    for name, path in packages.items():
        link = folder / name
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

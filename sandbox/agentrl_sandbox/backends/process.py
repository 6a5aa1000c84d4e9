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
from agentrl_sandbox.errors import LostError
from agentrl_sandbox.host import HostProcess
from agentrl_sandbox.leases import Lease
from agentrl_sandbox.local import sandbox
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.types import Limits

WARNING = "sandbox backend 'process' is NO security boundary: programs can read, write and reach whatever you can"


class InsecureSandboxWarning(UserWarning):
    """Programs run without a wall between them and this machine."""


class ProcessBackend:
    """Sandboxes that are child processes; says at its making that it protects nothing."""

    name = "process"

    def __init__(self) -> None:
        warnings.warn(WARNING, InsecureSandboxWarning, stacklevel=2)

    def describe(self) -> str:
        """What enforces which limits here."""
        return f"no security boundary; memory and processes by {cgroups.describe()}"

    async def create(self, limits: Limits) -> OrderedSandbox:
        """A warden in a working folder of its own."""
        lease_id = leases.new_id()
        cage = cgroups.cage(lease_id)
        lease = leases.write(Lease(lease_id, self.name, leases.me(), tuple(cage.paths) if cage else ()))
        lease.work.mkdir(parents=True)
        if cage:
            cage.make(limits)
        python = boot.interpreter()
        process = HostProcess(lease, boot.command(python, lease_id), cage)
        try:
            if cage:
                cage.add(process.pid)
            meters = (
                tuple((meter.limit, str(meter.folder / meter.file), meter.key) for meter in cage.meters())
                if cage
                else ()
            )
            path = f"{Path(python).parent}{os.pathsep}{os.defpath}"
            setup = boot.Setup(
                str(lease.work), path, limits, lease_id, has_memory_cgroup=cage is not None, meters=meters
            )
            await boot.load(process.channel, is_compiled=True)
            await boot.begin(process.channel, setup)
        except LostError as error:
            complaints = process.complaints()
            process.abandon()
            raise LostError(f"process: {error}{complaints}") from error
        except BaseException:
            process.abandon()
            raise
        process.forget_complaints()
        return sandbox(lease_id, process.channel, process, limits)

    async def close(self) -> None:
        """Nothing is shared."""

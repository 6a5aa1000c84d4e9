"""Removes what sandboxes have left behind whose owner was killed. `agentrl gc` and every pool's start call this."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from agentrl_sandbox import cgroups, leases
from agentrl_sandbox.errors import SandboxError
from agentrl_sandbox.leases import Lease, Owner

ENDING_S = 5.0


def collect(owner: Owner | None = None) -> list[str]:
    """Remove every sandbox whose owner is gone, or those of this `owner`; a line for each that was there."""
    orphans = [lease for lease in leases.recorded() if (lease.owner == owner if owner else lease.owner.is_gone())]
    if not orphans:
        return []
    pids = leases.marked()
    for lease in orphans:
        _kill(pids.get(lease.id, []))
    return [_remove(lease, pids.get(lease.id, [])) for lease in orphans]


def _remove(lease: Lease, pids: list[int]) -> str:
    """Everything of one lease; a line that says what it was, or what stands in the way."""
    what = f"sandbox {lease.id} ({lease.backend}, of process {lease.owner.pid}"
    try:
        _await_end(pids)
        cgroups.remove(lease.cgroups)
        if lease.backend == "docker":
            _remove_container(lease)
        leases.strike(lease)
    except (OSError, SandboxError) as error:
        return f"{what}) stays: {error}"
    cgroups.remove_homes(lease.cgroups)
    return f"{what}{f', {len(pids)} processes' if pids else ''}) removed"


def _remove_container(lease: Lease) -> None:
    from agentrl_sandbox.backends import docker

    docker.remove(lease.docker, lease.id)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _await_end(pids: list[int]) -> None:
    """Return when these processes have ended; OSError when they have not in time."""
    until = time.monotonic() + ENDING_S
    for pid in pids:
        while leases.is_running(pid):
            if time.monotonic() > until:
                raise OSError(f"process {pid} does not end")
            time.sleep(0.002)

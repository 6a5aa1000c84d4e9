"""Removes what sandboxes have left behind whose owner was killed. `agentrl gc` and every pool's start call this."""

from __future__ import annotations

from agentrl_sandbox import cgroups, leases
from agentrl_sandbox.errors import SandboxError
from agentrl_sandbox.leases import Lease, Owner

ENDING_S = 5.0


def collect(owner: Owner | None = None) -> list[str]:
    """Remove every sandbox whose owner is gone, or those of this `owner`; a line for each that was there."""
    orphans = [lease for lease in leases.recorded() if (lease.owner == owner if owner else lease.owner.is_gone())]
    if not orphans:
        return []
    try:
        killed = leases.kill_marked({lease.id for lease in orphans}, ENDING_S)
    except OSError as error:
        return [f"sandboxes of killed processes stay: {error}"]
    return [_remove(lease, killed[lease.id]) for lease in orphans]


def _remove(lease: Lease, processes: int) -> str:
    """Everything of one lease; a line that says what it was, or what stands in the way."""
    what = f"sandbox {lease.id} ({lease.backend}, of process {lease.owner.pid}"
    try:
        cgroups.remove(lease.cgroups)
        if lease.backend == "docker":
            _remove_container(lease)
        leases.strike(lease)
    except (OSError, SandboxError, ImportError) as error:
        return f"{what}) stays: {error}"
    cgroups.remove_homes(lease.cgroups)
    return f"{what}{f', {processes} processes' if processes else ''}) removed"


def _remove_container(lease: Lease) -> None:
    from agentrl_sandbox.backends import docker

    docker.remove(lease.docker, lease.id)

"""Removal of sandboxes whose owner was killed; called by `agentrl gc` and at the start of every pool."""

from __future__ import annotations

from agentrl_sandbox import cgroups, leases
from agentrl_sandbox.errors import SandboxError
from agentrl_sandbox.leases import Lease, Owner

ENDING_S = 5.0


def collect(owner: Owner | None = None) -> list[str]:
    """Remove every sandbox whose owner is gone, or those of `owner`; return one line per sandbox."""
    orphans = [lease for lease in leases.recorded() if (lease.owner == owner if owner else lease.owner.is_gone())]
    if not orphans:
        return []
    try:
        killed = leases.kill_marked({lease.id for lease in orphans}, ENDING_S)
    except OSError as error:
        return [f"sandboxes of killed processes cannot be removed: {error}"]
    return [_remove(lease, killed[lease.id]) for lease in orphans]


def _remove(lease: Lease, processes: int) -> str:
    """Remove everything of one lease; return a line that describes it, or the error that prevented its removal."""
    what = f"sandbox {lease.id} ({lease.backend}, of process {lease.owner.pid}"
    try:
        cgroups.remove(lease.cgroups)
        if lease.backend == "docker":
            _remove_container(lease)
        leases.strike(lease)
    except (OSError, SandboxError, ImportError) as error:
        return f"{what}) cannot be removed: {error}"
    cgroups.remove_homes(lease.cgroups)
    return f"{what}{f', {processes} processes' if processes else ''}) removed"


def _remove_container(lease: Lease) -> None:
    from agentrl_sandbox.backends import docker

    docker.remove(lease.docker, lease.id)

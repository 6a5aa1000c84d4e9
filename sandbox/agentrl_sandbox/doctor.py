"""Sandbox checks of `agentrl doctor`."""

from __future__ import annotations

from agentrl_sandbox import cgroups, leases
from agentrl_sandbox.choice import choose
from agentrl_sandbox.errors import SandboxError

CGROUPS_FIX = (
    "run as root, or have the system delegate cgroup v2 (memory, pids); until then limits apply per process (rlimits)"
)


def checks() -> list[tuple[str, bool, str, str, bool]]:
    """Return (name, is_ok, found, fix, is_needed) for every check."""
    has_cgroups = cgroups.cage("agentrl-doctor") is not None
    return [
        _backend(),
        ("sandbox limits", has_cgroups, cgroups.describe(), CGROUPS_FIX, False),
        _leftovers(),
    ]


def _backend() -> tuple[str, bool, str, str, bool]:
    try:
        backend = choose()
    except SandboxError as error:
        return "sandbox", False, "no backend works", str(error), False
    return "sandbox", True, f"{backend.name}: {backend.describe()}", "", False


def _leftovers() -> tuple[str, bool, str, str, bool]:
    count = sum(lease.owner.is_gone() for lease in leases.recorded())
    found = f"{count} left by killed processes" if count else "none"
    return "leftover sandboxes", not count, found, "agentrl gc", False

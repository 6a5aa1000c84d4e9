"""What a run may use: this machine, or the cluster that RAY_ADDRESS names."""

from __future__ import annotations

import os
from pathlib import Path

from agentrl.config.machine import Machine, detect


def hardware(folder: Path | None = None) -> Machine:
    """Return the resources of this machine (with the disk of `folder`), or of all machines of the cluster.

    Raises RunError if the cluster does not answer, and ConfigError if its machines have different packages.
    """
    if not os.environ.get("RAY_ADDRESS"):
        return detect(folder)
    from agentrl.cluster.ray.nodes import cluster_machine

    return cluster_machine()

"""The machines of a Ray cluster: what each of them has, before a run is planned."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agentrl.cluster.ray.actors import first_line
from agentrl.cluster.ray.start import Connection
from agentrl.config.machine import Machine, detect, together
from agentrl.errors import RunError

INSPECT_S = 120.0


def cluster_machine() -> Machine:
    """Return what all machines of the cluster that RAY_ADDRESS names have together.

    Raises RunError if the cluster does not answer, and ConfigError if its machines have different packages.
    """
    connection = Connection("agentrl-plan", Path(tempfile.gettempdir()))
    try:
        return together(_inspected())
    finally:
        connection.close()


def _inspected() -> list[Machine]:
    """Detect the resources of every machine, on it."""
    inspect: Any = ray.remote(num_cpus=0)(detect)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    found = [inspect.options(scheduling_strategy=strategy).remote() for strategy in there]
    machines = []
    for node, ref in zip(nodes, found, strict=True):
        try:
            machines.append(ray.get(ref, timeout=INSPECT_S))
        except (GetTimeoutError, RayError) as error:
            where = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            raise RunError(
                f"the machine {where} of the cluster cannot run agentrl: {first_line(error)}. Install the same "
                "packages on every machine (docs/scale-out.md)"
            ) from error
    return machines

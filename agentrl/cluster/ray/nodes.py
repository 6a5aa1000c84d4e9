"""The machines of a Ray cluster: what each of them has, and work that is done on all of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agentrl.cluster.ray.actors import first_line, node_address
from agentrl.cluster.ray.start import Connection
from agentrl.config.machine import Machine, detect, together
from agentrl.errors import RunError

T = TypeVar("T")

INSPECT_S = 120.0


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that is up."""

    id: str
    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def cluster_machine() -> Machine:
    """Return what all machines of the cluster that RAY_ADDRESS names have together.

    Raises RunError if the cluster does not answer, and ConfigError if its machines have different packages.
    """
    machines = []
    with _connected("agentrl-plan"):
        for node, machine in on_nodes(nodes(), detect, deadline_s=INSPECT_S):
            if isinstance(machine, RayError):
                raise RunError(
                    f"the machine {node} of the cluster cannot run agentrl: {first_line(machine)}. Install the same "
                    "packages on every machine (docs/scale-out.md)"
                ) from machine
            machines.append(machine)
        return together(machines)


def on_other_machines(work: Callable[..., T], *args: Any, deadline_s: float) -> Iterator[tuple[Node, T | RayError]]:
    """Call a function on every other machine of the cluster that RAY_ADDRESS names, as `on_nodes` does.

    Raises RunError if the cluster does not answer.
    """
    with _connected("agentrl-gc"):
        yield from on_nodes(other_nodes(), work, *args, deadline_s=deadline_s)


def _connected(namespace: str) -> AbstractContextManager[Connection]:
    """Connect a command that is no run."""
    return closing(Connection(namespace, Path(tempfile.gettempdir())))


def nodes() -> list[Node]:
    """Return the machines of the cluster that this process is connected to."""
    return [
        Node(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"]
    ]


def other_nodes() -> list[Node]:
    """Return the machines of the cluster without this one."""
    here = node_address()
    return [node for node in nodes() if node.address != here]


def on_nodes(
    chosen: list[Node], work: Callable[..., T], *args: Any, deadline_s: float
) -> Iterator[tuple[Node, T | RayError]]:
    """Call a function on machines, side by side; yields each with the result, or with the error of Ray."""
    remote: Any = ray.remote(num_cpus=0, max_retries=0)(work)
    there = [NodeAffinitySchedulingStrategy(node.id, soft=False) for node in chosen]
    found = [remote.options(scheduling_strategy=strategy).remote(*args) for strategy in there]
    ends_at = time.monotonic() + deadline_s
    for node, ref in zip(chosen, found, strict=True):
        try:
            yield node, ray.get(ref, timeout=max(0.0, ends_at - time.monotonic()))
        except GetTimeoutError as error:
            ray.cancel(ref)
            yield node, error
        except RayError as error:
            yield node, error

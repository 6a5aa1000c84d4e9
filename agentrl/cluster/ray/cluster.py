"""The cluster of one run: its own on this machine, or the one that RAY_ADDRESS names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil
import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from agentrl.cluster.placement import ON_NODE, Bundle
from agentrl.cluster.processes import ProcessRecord, ProcessRegistry
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec, start_actor
from agentrl.cluster.ray.nodes import nodes, on_nodes, other_nodes
from agentrl.cluster.ray.start import Connection, is_local
from agentrl.errors import RunError


class Cluster:
    """Where the processes of a run are. `bundles` are GPUs to reserve at the start, each of them on one node."""

    def __init__(self, namespace: str, registry: ProcessRegistry, bundles: Sequence[Bundle] | None = None) -> None:
        self._registry = registry
        before = set(psutil.Process().children())  # the caller's own
        self._connection = Connection(namespace, registry.folder)
        self._processes = set(psutil.Process().children()) - before
        self._node_ids: dict[str, str] = {}
        self._group: PlacementGroup | None = placement_group(list(bundles), strategy="PACK") if bundles else None

    async def ready(self, deadline_s: float) -> None:
        """Register Ray's own processes, and wait until the cluster has reserved the bundles."""
        for process in self._processes if is_local() else ():
            for child in (process, *process.children(recursive=True)):
                self._registry.register("ray", child.pid)
        if self._group is None:
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self._group.ready()
        except TimeoutError:
            raise RunError(
                f"the cluster did not provide {self._group.bundle_specs} within {deadline_s:.0f} s; it has "
                f"{ray.cluster_resources()}. Ask for fewer engines or ranks, or wait for the nodes."
            ) from None

    async def on_other_hosts(self, work: Callable[..., None], *args: Any, deadline_s: float) -> None:
        """Call a function on every other machine of the cluster. What fails there is left to a later call."""
        if not is_local():
            await asyncio.to_thread(lambda: list(on_nodes(other_nodes(), work, *args, deadline_s=deadline_s)))

    async def node_ids(self, deadline_s: float) -> dict[str, str]:
        """Return the ids of the machines that are up by their addresses; one that left and came back has another.

        If the cluster does not answer in time, they are those of its last answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                self._node_ids = {node.address: node.id for node in await asyncio.to_thread(nodes)}
        return self._node_ids

    def spawn(self, spec: ActorSpec) -> ActorHandle:
        """Start a process; `ActorHandle.make` then makes its object."""
        place = spec.place
        placed: dict[str, Any] = {"resources": {place.nodes: ON_NODE}} if place.nodes else {}
        if place.bundle is not None and self._group is not None:
            placed["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, place.bundle)
        elif not place.gpus:
            placed["scheduling_strategy"] = "SPREAD"  # otherwise Ray starts all of them on one node
        return start_actor(spec, **placed)

    def register(self, process: ProcessRecord) -> None:
        """Register a process of the run, on whatever host."""
        self._registry.add(process)

    def share(self, value: Any) -> Any:
        """Put a value where every actor can read it, without sending it twice; pass the result as an argument."""
        return ray.put(value)

    def close(self) -> None:
        """End every process of the run. Idempotent."""
        self._connection.close()

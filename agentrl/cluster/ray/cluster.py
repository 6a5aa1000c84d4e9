"""The cluster of one run: its own on this machine, or the one that RAY_ADDRESS names."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psutil
import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from agentrl.cluster.placement import ON_NODE, Bundle, Place
from agentrl.cluster.processes import ProcessRecord, ProcessRegistry
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec, start_actor
from agentrl.cluster.ray.nodes import nodes, on_nodes, other_nodes
from agentrl.cluster.ray.start import Connection, is_local
from agentrl.errors import RunError

NODES_S = 1.0
"""How often the cluster is asked for nodes that it does not have yet."""
NOTE_S = 10.0
ANSWER_S = 10.0
A_BYTE = 1
"""Of memory: Ray starts what needs no resource on any node, whatever its affinity, unless that is a hard one."""


class Cluster:
    """Where the processes of a run are.

    `bundles` are GPUs to reserve at the start, each of them on one node, and `nodes` the resources that name nodes, by
    the key that asks for each.
    """

    def __init__(
        self,
        namespace: str,
        registry: ProcessRegistry,
        bundles: Sequence[Bundle] | None = None,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        self._registry = registry
        before = set(psutil.Process().children())  # the caller's own
        self._connection = Connection(namespace, registry.folder)
        self._processes = set(psutil.Process().children()) - before
        self._node_ids: dict[str, str] = {}
        self._spawned = 0
        self._actors: weakref.WeakSet[ActorHandle] = weakref.WeakSet()
        self._nodes = dict(nodes or {})
        with ExitStack() as undo:  # nobody closes what was not made
            undo.callback(self._connection.close)
            self._group: PlacementGroup | None = placement_group(list(bundles), strategy="PACK") if bundles else None
            undo.pop_all()

    async def ready(self, deadline_s: float, note: Callable[[str], None] = lambda _: None) -> None:
        """Register Ray's own processes, and wait until the cluster has the run's nodes and has reserved its bundles.

        `note` says what the run waits for if that takes longer than NOTE_S.
        """
        for process in self._processes if is_local() else ():
            for child in (process, *process.children(recursive=True)):
                self._registry.register("ray", child.pid)
        if is_local() and self._nodes:
            raise RunError(
                f"without RAY_ADDRESS a run has this machine alone, which does not have {_named(self._nodes)}: set it "
                "to the address of a cluster's head (docs/scale-out.md), or leave the key out"
            )
        telling = asyncio.create_task(self._tell(note, deadline_s))
        try:
            async with asyncio.timeout(deadline_s):
                while await asyncio.to_thread(self._missing):  # noqa: ASYNC110 (Ray reports no machine that joins)
                    await asyncio.sleep(NODES_S)
                if self._group is not None:
                    await self._group.ready()
        except TimeoutError:
            why = await asyncio.to_thread(self._wanting)
            raise RunError(f"the cluster was not ready within {deadline_s:.0f} s: {why}") from None
        finally:
            telling.cancel()
        if not is_local():
            await self.node_ids(ANSWER_S)

    async def _tell(self, note: Callable[[str], None], deadline_s: float) -> None:
        await asyncio.sleep(NOTE_S)
        if self._nodes or self._group is not None:
            note(f"waiting up to {deadline_s:.0f} s for the cluster: {await asyncio.to_thread(self._wanting)}")

    def _missing(self) -> dict[str, str]:
        """Return the resources that no machine of the cluster has, by the key that asks for each."""
        there = ray.cluster_resources() if self._nodes else {}
        return {key: name for key, name in self._nodes.items() if name not in there}

    def _wanting(self) -> str:
        """Return what the cluster lacks, and what to do."""
        if missing := self._missing():
            flags = json.dumps(dict.fromkeys(missing.values(), 1))
            return f"no machine has {_named(missing)}; start Ray on one with --resources='{flags}'"
        bundles = self._group.bundle_specs if self._group is not None else []
        return (
            f"it did not provide {bundles}; it has {ray.cluster_resources()}. Ask for fewer engines or ranks, or wait "
            "for the nodes"
        )

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
            placed |= self._spread(place)
        actor = start_actor(spec, **placed)
        self._actors.add(actor)
        return actor

    def kill(self) -> None:
        """End every process that was spawned. Ray reports those that something else ends as lost."""
        for actor in list(self._actors):
            actor.kill()

    def _spread(self, place: Place) -> dict[str, Any]:
        """Return options that start processes on one node after the other; Ray's own are even on average only."""
        if place.nodes or not self._node_ids:
            return {"scheduling_strategy": "SPREAD"}
        ids = [self._node_ids[address] for address in sorted(self._node_ids)]
        self._spawned += 1
        next_one = NodeAffinitySchedulingStrategy(ids[self._spawned % len(ids)], soft=True)  # elsewhere, if it is gone
        return {"scheduling_strategy": next_one, "memory": A_BYTE}

    def register(self, process: ProcessRecord) -> None:
        """Register a process of the run, on whatever host."""
        self._registry.add(process)

    def share(self, value: Any) -> Any:
        """Put a value where every actor can read it, without sending it twice; pass the result as an argument."""
        return ray.put(value)

    def close(self) -> None:
        """End every process of the run. Idempotent."""
        self._connection.close()


def _named(nodes: Mapping[str, str]) -> str:
    return ", ".join(f"the resource {name} ({key})" for key, name in nodes.items())

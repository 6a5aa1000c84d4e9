"""Weights on their way to engines of other hosts: through Ray's object store, once for each host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from agentrl.cluster.placement import Place
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec, node_address
from agentrl.cluster.ray.cluster import Cluster
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError, DeadlineError, WeightsError
from agentrl.types import TensorSpec
from agentrl.weights.delivery import Staged
from agentrl.weights.host_files import HostFiles
from agentrl.weights.staging import Bucket, StagedBucket

START_S = 120.0
ANSWER_S = 10.0


class HostAgents:
    """A process on each host of the run that needs one, which has its staged files. Hosts are named by their addresses.

    A process that is gone, that did not answer, or whose host left the cluster and came back, is started again when it
    is needed.
    """

    def __init__(self, cluster: Cluster, fallback: Path) -> None:
        self._cluster, self._fallback = cluster, fallback
        self._agents: dict[str, asyncio.Task[ActorHandle]] = {}
        self._stuck: dict[str, ActorHandle] = {}
        self._checks: set[asyncio.Task[Any]] = set()
        self._nodes: dict[str, str] = {}

    async def agent(self, host: str) -> ActorHandle:
        """Return the process of a host. Raises AgentRLError if it does not start."""
        stuck = self._stuck.pop(host, None)
        if stuck is not None and self._running(host) is stuck:
            del self._agents[host]
            stuck.kill()
        if host not in self._agents or _failed(self._agents[host]):
            self._agents[host] = asyncio.create_task(self._started(host))
        return await asyncio.shield(self._agents[host])

    async def renew(self) -> None:
        """Forget the processes of hosts that have left the cluster and are back without them."""
        if self._agents:
            nodes = await self._cluster.node_ids(ANSWER_S)
            for host in [host for host in self._agents if self._running(host)]:
                started_on = self._nodes[host]
                if nodes.get(host, started_on) != started_on:
                    del self._agents[host]

    async def call(self, host: str, method: str, *args: Any, deadline_s: float) -> Any:
        """Call a method of the HostFiles of a host. Raises WeightsError if its process is gone.

        One that does not answer in time, or before the caller gives up, is replaced by the next call. Until then it may
        still remove its files.
        """
        agent = await self.agent(host)
        try:
            return await agent.call(method, *args, deadline_s=deadline_s)
        except WeightsError:
            if self._running(host) is agent:
                del self._agents[host]
            raise
        except (DeadlineError, asyncio.CancelledError):
            if self._running(host) is agent:
                self._stuck[host] = agent
            raise

    def check(self, host: str) -> None:
        """See whether the process of a host answers, without waiting for it."""
        task = asyncio.create_task(self.call(host, "check", deadline_s=ANSWER_S))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        task.add_done_callback(_retrieve)

    def discard(self, host: str, name: str, *, is_source: bool = False) -> None:
        """Remove a bucket of a host, without waiting for it. `is_source`: the learner staged it there."""
        agent = self._running(host)
        if agent is not None:
            agent.begin("discard", name, is_source)

    def _running(self, host: str) -> ActorHandle | None:
        task = self._agents.get(host)
        return task.result() if task is not None and task.done() and not _failed(task) else None

    async def _started(self, host: str) -> ActorHandle:
        place = Place(nodes=f"node:{host}")
        spec = ActorSpec(f"files of {host}", HostFiles, (self._fallback, host), place=place, died=WeightsError)
        agent = self._cluster.spawn(spec)
        self._cluster.register(await agent.make(deadline_s=START_S))
        self._nodes[host] = (await self._cluster.node_ids(ANSWER_S)).get(host, "")
        return agent


class HostRelay:
    """Copies what `source()`, a host, stages to the hosts of the engines, into the shared memory of each.

    On one host nothing is copied, and no process is started.
    """

    def __init__(self, agents: HostAgents, source: Callable[[], str] = node_address) -> None:
        self._agents, self._source = agents, source

    def host_of(self, engine: Engine) -> str:
        """Return the host of an engine that has started."""
        return cast(RemoteEngine, engine).host

    async def relayed(
        self, buckets: AsyncGenerator[StagedBucket], hosts: Sequence[str], deadline_s: float
    ) -> AsyncGenerator[Staged]:
        """Yield buckets that are on their way to these hosts. A host that cannot be reached fails its own engines."""
        source = self._source()
        others = sorted({*hosts} - {source})
        is_here = not others and source == node_address()
        async with aclosing(buckets):
            if not is_here:
                await self._agents.renew()
            async for bucket in buckets:
                yield bucket if is_here else _RelayedBucket(self._agents, bucket, source, others, deadline_s)


class _RelayedBucket:
    """A bucket with copies on other hosts."""

    def __init__(
        self, agents: HostAgents, bucket: StagedBucket, source: str, others: Sequence[str], deadline_s: float
    ) -> None:
        self._agents, self._bucket, self._source, self._deadline_s = agents, bucket, source, deadline_s
        self._copies = {host: asyncio.create_task(self._copy(host)) for host in others}
        self._reading = asyncio.create_task(self._read()) if others else None
        self._late: dict[str, WeightsError] = {}

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return self._bucket.tensors

    @property
    def nbytes(self) -> int:
        return self._bucket.nbytes

    @property
    def is_last(self) -> bool:
        return self._bucket.is_last

    async def load_on(self, host: str) -> Bucket:
        """Return what engines of a host load, once it is there. Raises AgentRLError if it does not get there."""
        if host == self._source:
            return self._bucket.load
        copy = self._copies[host]
        await asyncio.wait({copy})
        if copy.cancelled():
            late = (
                f"{host}: the weights did not get there while the engines of other hosts waited; see whether it answers"
            )
            raise self._late.setdefault(host, WeightsError(late))  # one cause for all engines of the host
        return self._bucket.moved(copy.result())

    def discard(self) -> None:
        for task in (self._reading, *self._copies.values()):
            if task is not None:
                task.cancel()
                task.add_done_callback(_retrieve)
        for host in self._copies:
            self._agents.discard(host, self._bucket.path.name)
        if self._source == node_address():
            self._bucket.discard()
        else:
            self._agents.discard(self._source, self._bucket.path.name, is_source=True)

    async def _read(self) -> Any:
        """Return a reference to the bytes, which stay in the object store of the source until they are asked for."""
        agent = await self._agents.agent(self._source)
        return agent.begin("read", self._bucket.path)

    async def _copy(self, host: str) -> Path:
        assert self._reading is not None
        parcel = await asyncio.shield(self._reading)
        name = self._bucket.path.name
        try:
            path: Path = await self._agents.call(host, "write", name, parcel, deadline_s=self._deadline_s)
        except AgentRLError:
            # Nothing else notices a process that died while it read: its error reaches the one that writes.
            await self._agents.call(self._source, "check", deadline_s=ANSWER_S)
            raise
        except asyncio.CancelledError:
            self._agents.check(self._source)  # what is given up may have waited for the one that reads
            raise
        return path


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Look at the error of a task that nobody waits for, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()

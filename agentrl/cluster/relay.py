"""Weights on their way to engines of other hosts: through Ray's object store, once for each host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from agentrl.cluster.placement import Place
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec, node_address
from agentrl.cluster.ray.cluster import Cluster
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import AgentRLError, DeadlineError, LearnerError, WeightsError
from agentrl.types import TensorSpec
from agentrl.weights.delivery import AHEAD, Staged
from agentrl.weights.host_files import HostFiles
from agentrl.weights.staging import Bucket, StagedBucket, remove_staged

T = TypeVar("T")

START_S = 120.0
ANSWER_S = 10.0


class HostAgents:
    """A process on each host of the run that needs one, which has its staged files. Hosts are named by their addresses.

    A process that is gone, that did not answer, or whose host left the cluster and came back, is started again when it
    is needed. `folder` is that of the run, which all hosts see.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self.folder = cluster, folder
        self._agents: dict[str, asyncio.Task[ActorHandle]] = {}
        self._stuck: dict[str, ActorHandle] = {}
        self._checks: set[asyncio.Task[Any]] = set()
        self._nodes: dict[str, str] = {}
        self.without_store: set[str] = set()
        """The hosts on which a process died while a bucket passed through Ray's object store: none does any more."""

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

    async def answers(self, host: str, agent: ActorHandle) -> bool:
        """Return whether a process of a host is still there. Raises DeadlineError if it does not say."""
        if self._running(host) is agent:
            with suppress(WeightsError):
                await self.call(host, "check", deadline_s=ANSWER_S)
        return self._running(host) is agent

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
        spec = ActorSpec(f"files of {host}", HostFiles, (self.folder, host), place=place, died=WeightsError)
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
        self._shared = _Shared(agents.folder)

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
            self._shared.clear()
            if not is_here:
                await self._agents.renew()
            async for bucket in buckets:
                if is_here:
                    yield bucket
                else:
                    yield _RelayedBucket(self._agents, self._shared, bucket, source, others, deadline_s)


class _Shared:
    """What a publication has in a folder that all hosts see, until the next one begins.

    Engines read it until the publication is over, and when one host removes a file on a network file system, the
    readers on others lose it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: set[Path] = set()

    def __contains__(self, path: Path) -> bool:
        return path in self._paths

    def has(self, path: Path) -> bool:
        """Return whether a bucket was staged in the folder itself."""
        return path.parent == self._folder

    def place(self, path: Path) -> Path:
        """Return where a bucket is to be in the folder: where it was staged, or under a name that nothing has."""
        placed = path if self.has(path) else self._folder / f"{path.name}-shared{len(self._paths)}"
        self._paths.add(placed)
        return placed

    def clear(self) -> None:
        """Remove it."""
        for path in self._paths:
            remove_staged(path)
        self._paths.clear()


class _RelayedBucket:
    """A bucket with copies on other hosts, or in the folder that all hosts see."""

    def __init__(
        self,
        agents: HostAgents,
        shared: _Shared,
        bucket: StagedBucket,
        source: str,
        others: Sequence[str],
        deadline_s: float,
    ) -> None:
        self._agents, self._shared, self._bucket = agents, shared, bucket
        self._source, self._deadline_s = source, deadline_s
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # what is done once for all hosts
        self._copies = {host: asyncio.create_task(self._copy(host)) for host in others}
        self._written: set[str] = set()  # hosts with files of their own, or soon
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
        for task in (*self._tasks.values(), *self._copies.values()):
            task.cancel()
            task.add_done_callback(_retrieve)
        for host in self._written:
            self._agents.discard(host, self._bucket.path.name)
        if self._bucket.path in self._shared:
            return
        if self._source == node_address():
            self._bucket.discard()
        else:
            self._agents.discard(self._source, self._bucket.path.name, is_source=True)

    async def _copy(self, host: str) -> Path:
        """Return the copy for a host: through Ray's object store, or in the folder that all hosts see.

        Raises LearnerError for what is the fault of the learner's host.
        """
        try:
            if await self._has_room(host) and (copy := await self._stored(host)):
                return copy
            return await self._once(self._share)
        except asyncio.CancelledError:
            self._agents.check(self._source)  # what is given up may have waited for the one that reads
            raise

    async def _has_room(self, host: str) -> bool:
        """Return whether the bucket may pass through Ray's object store, here and there."""
        if self._shared.has(self._bucket.path) or self._source in self._agents.without_store:
            return False
        on_their_way = AHEAD * self._bucket.nbytes
        has_room: bool = await self._agents.call(host, "has_room", on_their_way, deadline_s=self._deadline_s)
        return has_room and await self._once(self._source_has_room)

    async def _source_has_room(self) -> bool:
        try:
            has_room: bool = await self._agents.call(
                self._source, "has_room", self._bucket.nbytes, deadline_s=self._deadline_s
            )
        except WeightsError:
            return False
        return has_room

    async def _stored(self, host: str) -> Path | None:
        """Return the copy of a host in its shared memory, None if the process that reads on the learner's host died."""
        agent, parcel = await self._once(self._read)
        name = self._bucket.path.name
        self._written.add(host)
        try:
            copy: Path = await self._agents.call(host, "write", name, parcel, deadline_s=self._deadline_s)
        except AgentRLError:
            # Nothing else notices a process that died while it read: its error reaches the one that writes.
            if await self._agents.answers(self._source, agent):
                raise
            self._agents.without_store.add(self._source)
            return None
        return copy

    async def _read(self) -> tuple[ActorHandle, Any]:
        """Return the process that reads, and a reference to the bytes, which stay in its store until asked for."""
        agent = await self._agents.agent(self._source)
        return agent, agent.begin("read", self._bucket.path)

    async def _share(self) -> Path:
        """Return the copy in the folder that all hosts see. It is tried again if the process that copies dies."""
        try:
            with suppress(WeightsError):
                return await self._placed()
            return await self._placed()
        except AgentRLError as error:
            raise LearnerError(f"the weights cannot leave the host {self._source}: {error}") from error

    async def _placed(self) -> Path:
        copy = self._shared.place(self._bucket.path)
        await self._agents.call(self._source, "share", self._bucket.path, copy, deadline_s=self._deadline_s)
        return copy

    async def _once(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of some work that is done once for all hosts."""
        name = work.__name__
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(work())
        result: T = await asyncio.shield(self._tasks[name])
        return result


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Look at the error of a task that nobody waits for, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.workers import Workers
from agentrl.errors import WorkerLostError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts
from agentrl.rollout.slots import Slots


class Process:
    """A worker's process that dies when it is first asked for a reply, or starts as slowly as the test says."""

    name, host = "worker 0", ""

    def __init__(self, is_first: bool, start: asyncio.Event) -> None:
        self._is_first, self._start, self._is_made = is_first, start, False

    async def make(self, *, deadline_s: float) -> str:
        if not self._is_first:
            await self._start.wait()
        self._is_made = True
        return self.name

    async def call(self, method: str, *args: Any, deadline_s: float) -> str:
        assert self._is_made, "it was asked before its start had ended"
        if self._is_first and method == "judged":
            raise WorkerLostError("worker 0: it died")
        return method

    def kill(self) -> None: ...


class Processes:
    """A cluster of such processes."""

    def __init__(self) -> None:
        self.start, self.replaced, self._count = asyncio.Event(), asyncio.Event(), 0

    def spawn(self, spec: ActorSpec) -> Process:
        self._count += 1
        if self._count > 1:
            self.replaced.set()
        return Process(self._count == 1, self.start)

    def register(self, process: str) -> None: ...


async def test_a_worker_that_is_being_replaced_is_asked_once_it_has_started(tmp_path: Path) -> None:
    processes, records = Processes(), Restarts(RunFolder(tmp_path), 5, lambda _: None)

    def spec_of(*_: Any) -> ActorSpec:
        return ActorSpec("worker 0", Process)

    workers = Workers(cast(Cluster, processes), spec_of, 1, records, Slots({}))
    await workers.start({})
    lost = asyncio.create_task(workers._ask(0, "judged", deadline_s=1))
    await asyncio.wait_for(processes.replaced.wait(), 10)
    asked = [asyncio.create_task(workers._ask(0, "run", deadline_s=1)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in asked)
    processes.start.set()
    assert await asyncio.gather(*asked) == ["run", "run"]
    with pytest.raises(WorkerLostError, match="it died"):
        await lost
    records.close()

"""Rollout workers on a host that is lost, without engines or a model: Ray starts them again elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.hosts import hosts
from tests.cluster.runs import NEEDS_HOSTS

pytestmark = NEEDS_HOSTS

DRIVER = """
import asyncio, socket, sys
from pathlib import Path
from agentrl.cluster.placement import Place
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.workers import Workers
from agentrl.errors import WorkerLostError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts
from agentrl.rollout.slots import Slots

class Worker:
    async def task_count(self, split): return {}
    async def engine_lost(self, *args): pass
    async def close(self): pass

class Recorded(ProcessRegistry):
    def add(self, process):
        super().add(process)
        print(process.role, process.host, flush=True)

async def main(folder):
    cluster = Cluster("test", Recorded(folder))
    place = Place(nodes="engine")
    def spec(engines, number):
        return ActorSpec(f"rollout worker {number}", Worker, place=place, died=WorkerLostError)
    workers = Workers(cluster, spec, 2, Restarts(RunFolder(folder), 5, lambda said: print(said, flush=True)), Slots({}))
    await workers.start({})
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await workers.engine_lost(0, "its host is gone")
    print("told", flush=True)
    cluster.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_worker_of_a_host_that_is_killed_comes_back_on_another(shared: Path) -> None:
    with hosts("head", "one", "two") as (head, *others):
        head.start_ray("head")
        for host in others:
            host.join_ray(head, "engine")
        command = head.command(sys.executable, "-c", DRIVER, str(shared))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            started = [driver.stdout.readline() for _ in range(3)]
            where = dict(line.rsplit(maxsplit=1) for line in started[:2])
            assert where.keys() == {"rollout worker 0", "rollout worker 1"}
            assert {*where.values()} == {"one", "two"}
            others[1].kill()
            [lost] = [worker for worker, host in where.items() if host == "two"]
            said, _ = driver.communicate("\n", timeout=120.0)
    assert f"{lost} is lost and will be replaced" in said
    assert f"\n{lost} one\ntold\n" in said

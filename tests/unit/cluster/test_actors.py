"""The processes of a run are made as the configuration says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster.actors import Actors, _spawned
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import Stop
from agentrl.config.schema import Config
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import closing
from agentrl.records.restarts import Restarts
from tests.unit.cluster.test_engines import Process, Processes


class Started(Process):
    """A process that makes no object: it records what it would be made with, and by when."""

    async def make(self, *args: Any, deadline_s: float) -> int:
        self.made_with, self.deadline_s = args, deadline_s
        return 1

    async def devices(self, deadline_s: float) -> list[str]:
        return [f"GPU of {self.name}"]

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        return []


class Hosts(Processes):
    """A cluster of them."""

    def spawn(self, spec: ActorSpec) -> Process:
        self.spawned.append(Started(spec))
        return self.spawned[-1]


@pytest.fixture
def restarts(tmp_path: Path) -> Iterator[Restarts]:
    with closing(Restarts(RunFolder(tmp_path), 0, lambda _: None)) as made:
        yield made


def spawned(folder: Path, restarts: Restarts, **sections: dict[str, object]) -> tuple[Actors, dict[str, Started]]:
    """The actors of a run, and their processes by name."""
    cluster, config = Hosts(), Config.model_validate({"env": {"name": "guess"}, **sections})
    config = config.model_copy(update={"device": "cuda"})
    team = _spawned(cast(Cluster, cluster), config, folder, RunFolder(folder), restarts, Stop(), learns=True)
    return team, {process.name: cast(Started, process) for process in cluster.spawned}


async def test_an_engine_gets_the_gpus_of_the_ranks_with_which_it_takes_turns(
    tmp_path: Path, restarts: Restarts
) -> None:
    engine = {"placement": "colocate", "count": 2, "tensor_parallel": 2}
    team, processes = spawned(tmp_path, restarts, engine=engine, learner={"ranks": 4})
    await team.engines.start()
    for number in range(2):
        ranks = [f"GPU of learner rank {rank}" for rank in (2 * number, 2 * number + 1)]
        assert processes[f"engine {number}"].made_with == (ranks,)


async def test_engines_with_gpus_of_their_own_get_none_of_the_ranks(tmp_path: Path, restarts: Restarts) -> None:
    engine = {"placement": "separate", "count": 1, "tensor_parallel": 1}
    team, processes = spawned(tmp_path, restarts, engine=engine, learner={"ranks": 1})
    await team.engines.start()
    assert processes["engine 0"].made_with == ()


async def test_engines_and_ranks_have_deadlines_of_their_own_for_the_start(tmp_path: Path, restarts: Restarts) -> None:
    engine = {"placement": "separate", "count": 1, "tensor_parallel": 1, "start_timeout_s": 7.0}
    team, processes = spawned(tmp_path, restarts, engine=engine, learner={"ranks": 2, "start_timeout_s": 11.0})
    await team.engines.start()
    await team.learners.start()
    found = {name: process.deadline_s for name, process in processes.items()}
    assert found == {"engine 0": 7.0, "learner rank 0": 11.0, "learner rank 1": 11.0}

"""The processes of a run are made as the configuration says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster import actors as actors_module
from agentrl.cluster.actors import Actors, _spawned, actors, learner_ranks
from agentrl.cluster.leftovers import clean_host
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.signals import Stop
from agentrl.config.schema import Config
from agentrl.metrics.timer import PhaseTimer
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


class Others(Hosts):
    """A cluster with other machines, and what was asked of it, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.asked = folder, list[str]()

    async def ready(self, *_: Any) -> None:
        self.asked.append("ready")

    def spawn(self, spec: ActorSpec) -> Process:
        self.asked.append("spawn")
        return super().spawn(spec)

    async def on_other_hosts(self, work: Callable[..., None], *args: Any, deadline_s: float) -> None:
        assert (work, args) == (clean_host, (self.folder,))
        self.asked.append("clean the others")

    def kill(self) -> None:
        self.asked.append("kill")

    def close(self) -> None:
        self.asked.append("close")


@pytest.mark.parametrize("learns", [True, False], ids=["run", "evaluation"])
async def test_what_a_run_left_on_other_machines_is_removed_before_its_start_and_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    cluster = Others(tmp_path)
    monkeypatch.setattr(actors_module, "Cluster", lambda *_: cluster)
    config = Config.model_validate({"env": {"name": "guess"}, "engine": {"count": 1}, "learner": {"ranks": 1}})
    timer = PhaseTimer()
    async with actors(config, tmp_path, RunFolder(tmp_path), Stop(), timer, lambda _: None, learns=learns):
        assert cluster.asked[:3] == ["ready", "clean the others", "spawn"], "before anything of this run is there"
        cluster.asked.clear()
    assert cluster.asked == ["kill", "clean the others", "close"]


async def test_ranks_alone_leave_nothing_on_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Others(tmp_path)
    monkeypatch.setattr(actors_module, "Cluster", lambda *_: cluster)
    config = Config.model_validate({"env": {"name": "guess"}, "learner": {"ranks": 1}})
    async with learner_ranks(config, tmp_path, RunFolder(tmp_path), Stop(), PhaseTimer()):
        cluster.asked.clear()
    assert cluster.asked == ["kill", "clean the others", "close"]

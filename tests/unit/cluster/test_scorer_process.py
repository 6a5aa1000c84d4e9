"""Scorers of their own compute their columns beside the ranks, and are replaced when they die or hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from agentrl.algorithms.sample import Column, TrainSequence
from agentrl.cluster.learners import Learners
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.scorer_process import ScorerProcess, separate_columns
from agentrl.config.schema import Config
from agentrl.errors import DeadlineError, LearnerDiedError, LearnerError, RunError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts, read_restarts
from tests.unit.cluster.test_engines import Process, Processes

BATCH = cast(list[TrainSequence], [0, 1, 2])


DEADLINE_S = 60.0


class Models:
    """A rank or a scorer: `number` tells their columns apart. It fails as its script says."""

    def __init__(self, number: int, script: list[Exception]) -> None:
        self.number, self.script, self.asked = number, script, 0

    def score(self, batch: list[int], columns: list[Column]) -> dict[Column, dict[int, Any]]:
        self.asked += 1
        if self.script:
            raise self.script.pop(0)
        return {column: {index: np.array([self.number, index]) for index in batch} for column in columns}


class ModelProcess(Process):
    """The process of such an object."""

    async def address(self, deadline_s: float) -> tuple[str, int]:
        return "", 0

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        return getattr(self.object, method)(*args)


class ModelProcesses(Processes):
    """A cluster of them; what is shared stays as it is."""

    def spawn(self, spec: ActorSpec) -> Process:
        self.spawned.append(ModelProcess(spec))
        return self.spawned[-1]

    def share(self, value: Any) -> Any:
        return value


class Run:
    """A rank with number 1 and scorers with number 2, which fail as `script` says."""

    def __init__(self, folder: Path, restarts: int = 2) -> None:
        self.folder, self.processes, self.script = RunFolder(folder), ModelProcesses(), list[Exception]()
        self.notes: list[str] = []
        self.records = Restarts(self.folder, restarts, self.notes.append)
        cluster = cast(Cluster, self.processes)
        spec = ActorSpec("scorers", Models, (2, self.script))
        columns: frozenset[Column] = frozenset({"reference", "teacher"})
        self.scorers = ScorerProcess(cluster, spec, columns, self.records, DEADLINE_S)
        self.learners = Learners(cluster, [ActorSpec("learner rank 0", Models, (1, []))], DEADLINE_S, self.scorers)

    async def score(self, *columns: Column) -> dict[Column, list[list[int]]]:
        scores = await self.learners.score(BATCH, columns, 5.0)
        return {column: [row.tolist() for row in rows] for column, rows in scores.items()}

    @property
    def asked(self) -> list[tuple[str, int]]:
        return [(process.name, process.object.asked) for process in self.processes.spawned]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.records.close()


async def test_each_column_is_computed_where_its_model_is(run: Run) -> None:
    await run.learners.start()
    scores = await run.score("old", "reference", "values")
    assert {column: rows[2] for column, rows in scores.items()} == {
        "old": [1, 2],
        "reference": [2, 2],
        "values": [1, 2],
    }
    await run.score("teacher")
    await run.score("old")
    assert run.asked == [("scorers", 2), ("learner rank 0", 2)], "nobody is asked for nothing"


@pytest.mark.parametrize("failure", [LearnerDiedError("its process died"), DeadlineError("took longer than 5 s")])
async def test_scorers_that_die_or_hang_are_replaced_and_asked_again(run: Run, failure: Exception) -> None:
    await run.learners.start()
    run.script.append(failure)
    assert (await run.score("reference"))["reference"] == [[2, 0], [2, 1], [2, 2]]
    assert [process.is_killed for process in run.processes.spawned] == [True, False, False]
    [restart] = read_restarts(run.folder)
    assert (restart.process, restart.why) == ("scorers", str(failure))
    assert run.notes[-1] == "scorers is back"


async def test_scorers_that_die_again_and_again_stop_the_run(run: Run) -> None:
    await run.learners.start()
    run.script += [LearnerDiedError("its process died")] * 3
    with pytest.raises(RunError, match=r"scorers died 3 times \(engine.restarts = 2\); the last, scorers: its process"):
        await run.score("old", "reference")


async def test_a_second_deadline_in_a_row_stops_the_run_and_says_that_it_can_be_resumed(run: Run) -> None:
    await run.learners.start()
    run.script += [DeadlineError("score took longer than 5 s")] * 2
    with pytest.raises(LearnerError, match=r"longer than 5 s: scorers does not answer. The run can be resumed."):
        await run.score("reference")


async def test_what_scorers_raise_is_not_tried_again(run: Run) -> None:
    await run.learners.start()
    run.script.append(LearnerError("out of memory"))
    with pytest.raises(LearnerError, match="out of memory"):
        await run.score("reference")
    assert len(run.processes.spawned) == 2


def config(**sections: dict[str, object]) -> Config:
    return Config.model_validate({"scorers": {"placement": "separate"}, **sections})


def test_separate_scorers_compute_what_frozen_models_do() -> None:
    kl = {"kl_coef": 0.1}
    assert separate_columns(config(algorithm={"name": "ppo", **kl})) == {"reference"}
    assert separate_columns(config(algorithm=kl, lora={"rank": 8})) == set(), "the policy without its adapters"
    distillation = {"name": "distillation", "teacher": "owner/name", **kl}
    assert separate_columns(config(algorithm=distillation, lora={"rank": 8})) == {"teacher"}
    assert separate_columns(config(algorithm=distillation, scorers={})) == set()

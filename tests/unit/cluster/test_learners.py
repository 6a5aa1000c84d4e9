"""Ranks of policy and critic are called together, and what they report is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from agentrl.algorithms.sample import Column, TrainSequence
from agentrl.cluster.learners import Learners, with_critic
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.errors import DeadlineError, LearnerDiedError, LearnerError, RunError, WeightsError
from agentrl.types import SampleId, StepReport
from tests.unit.cluster.test_scorer_process import ModelProcesses

BATCH = cast(list[TrainSequence], [0, 1])
DEADLINE_S = 60.0


def report(digest: str, seconds: float = 1.0, nonfinite: int = 0, **meters: float) -> StepReport:
    samples = (SampleId(0, int(seconds)),)
    return StepReport(0.5, 1.0, 1e-3, 4, 1, samples, seconds, nonfinite_steps=nonfinite, meters=meters, digest=digest)


class Rank:
    """A rank that notes its calls in the order of all ranks; `number` tells its columns apart."""

    def __init__(self, name: str, number: int, calls: list[tuple[str, str]], *, dies: bool = False) -> None:
        self.name, self.number, self.calls, self.dies = name, number, calls, dies
        self.late = ""
        self.fails: Exception | None = None

    def _note(self, method: str) -> None:
        self.calls.append((self.name, method))

    def score(self, batch: list[int], columns: list[Column]) -> dict[Column, dict[int, Any]]:
        self._note(f"score {' '.join(columns)}")
        return {column: {index: np.array([self.number, index]) for index in batch} for column in columns}

    def step(self, batch: list[int], state: dict[str, float]) -> StepReport:
        self._note("step")
        if self.dies:
            raise LearnerDiedError(f"{self.name}: its process died during step")
        return replace(report(self.name, seconds=self.number), meters={f"of_{self.number}": 1.0})

    def save(self, folder: Path, state: dict[str, float]) -> None:
        self._note("save")
        if self.fails:
            raise self.fails
        if self.late:
            raise DeadlineError(self.late)

    def load(self, folder: Path) -> dict[str, float]:
        self._note("load")
        return {"kl_coef": 0.25}


def team(calls: list[tuple[str, str]], *, critics: int = 1, dies: bool = False) -> Learners:
    policy = [ActorSpec(f"rank {n}", Rank, (f"rank {n}", 1, calls)) for n in range(2)]
    critic = [ActorSpec(f"critic rank {n}", _Critic(dies), (f"critic rank {n}", 2, calls)) for n in range(critics)]
    return Learners(cast(Cluster, ModelProcesses()), policy, DEADLINE_S, critic=critic)


class _Critic:
    def __init__(self, dies: bool) -> None:
        self._dies = dies

    def __call__(self, name: str, number: int, calls: list[tuple[str, str]]) -> Rank:
        return Rank(name, number, calls, dies=self._dies)


async def test_the_critics_ranks_compute_values_and_the_policys_the_rest() -> None:
    calls: list[tuple[str, str]] = []
    learners = team(calls)
    await learners.start()
    scores = await learners.score(BATCH, ["old", "values"], DEADLINE_S)
    assert {column: [row.tolist() for row in rows] for column, rows in scores.items()} == {
        "old": [[1, 0], [1, 1]],
        "values": [[2, 0], [2, 1]],
    }
    assert sorted(calls) == [("critic rank 0", "score values"), ("rank 0", "score old"), ("rank 1", "score old")]


async def test_a_step_is_taken_on_all_ranks_and_the_critics_part_of_a_checkpoint_comes_first() -> None:
    calls: list[tuple[str, str]] = []
    learners = team(calls, critics=2)
    await learners.start()
    reports = await learners.step(BATCH, {}, DEADLINE_S)
    assert len(reports) == 2
    assert {name for name, _ in calls} == {"rank 0", "rank 1", "critic rank 0", "critic rank 1"}
    assert reports[0].meters == {"of_1": 1.0, "of_2": 1.0}
    calls.clear()
    await learners.save(Path("step"), {}, DEADLINE_S)
    assert [name for name, _ in calls] == ["critic rank 0", "critic rank 1", "rank 0", "rank 1"]
    assert await learners.load(Path("step"), DEADLINE_S) == {"kl_coef": 0.25}
    assert calls[4:] == [(name, "load") for name in ("critic rank 0", "critic rank 1", "rank 0", "rank 1")]


async def test_the_death_of_a_critics_rank_is_named_and_the_run_can_be_resumed() -> None:
    learners = team([], dies=True)
    await learners.start()
    with pytest.raises(LearnerDiedError, match=r"^critic rank 0: its process died .* can be resumed from its last"):
        await learners.step(BATCH, {}, DEADLINE_S)


@pytest.mark.parametrize("silent", [[0, 1], [1]])
async def test_all_ranks_that_do_not_answer_are_named_with_their_hosts(silent: list[int]) -> None:
    processes = ModelProcesses()
    policy = [ActorSpec(f"rank {n}", Rank, (f"rank {n}", 1, [])) for n in range(3)]
    learners = Learners(cast(Cluster, processes), policy, DEADLINE_S)
    await learners.start()
    processes.spawned[1].where = " on b"
    for n in silent:
        process = processes.spawned[n]
        process.object.late = f"{process.name}{process.where}: save took longer than 15 s"
    with pytest.raises(LearnerError) as raised:
        await learners.save(Path("step"), {}, DEADLINE_S)
    if silent == [1]:
        assert (
            str(raised.value)
            == "rank 1 on b: save took longer than 15 s: rank 1 does not answer. The run can be resumed."
        )
    else:
        told = "rank 0, rank 1 on b: save took longer than 15 s: none of them answers. Ranks wait for each other"
        assert str(raised.value).startswith(told)
        assert str(raised.value).endswith("The run can be resumed.")


async def test_the_error_of_a_rank_is_raised_rather_than_the_silence_of_those_that_wait_for_it() -> None:
    processes = ModelProcesses()
    policy = [ActorSpec(f"rank {n}", Rank, (f"rank {n}", 1, [])) for n in range(2)]
    learners = Learners(cast(Cluster, processes), policy, DEADLINE_S)
    await learners.start()
    waiting, full = (processes.spawned[n].object for n in range(2))
    waiting.late, full.fails = "rank 0: save took longer than 15 s", RunError("cannot write step: No space left")
    with pytest.raises(RunError, match="No space left"):
        await learners.save(Path("step"), {}, DEADLINE_S)


@pytest.mark.parametrize("other", ["", "late", "fails"])
async def test_a_send_that_engines_failed_is_said_only_if_all_ranks_can_go_on(other: str) -> None:
    processes = ModelProcesses()
    learners = Learners(cast(Cluster, processes), [ActorSpec(f"rank {n}", Rank, ("", 1, [])) for n in range(2)], 60.0)
    await learners.start()
    sender, rank = (processes.spawned[n].object for n in range(2))
    sender.fails = WeightsError("its process died")
    rank.late = "rank 1: save took longer than 15 s" if other == "late" else ""
    rank.fails = LearnerError("rank 1 failed") if other == "fails" else None
    with pytest.raises(WeightsError if not other else LearnerError, match="died" if not other else "rank 1"):
        await learners.save(Path("step"), {}, DEADLINE_S)


def test_reports_with_a_separate_critic_are_those_of_ranks_that_hold_both() -> None:
    together = with_critic([report("p0c0"), report("p1c1")], [])
    apart = with_critic([report("p0"), report("p1")], [report("c0", 9.0, 2, value_loss=0.1), report("c1")])
    assert apart[0].digest == together[1].digest
    assert with_critic([report("p0"), report("p1")], [report("c1"), report("c0")])[0].digest != together[0].digest
    for one, other in zip(apart, together, strict=True):
        assert (one.samples, one.tokens, one.loss) == (other.samples, other.tokens, other.loss)
        assert (one.meters, one.nonfinite_steps, one.seconds) == ({"value_loss": 0.1}, 2, 9.0)
    more = with_critic([report("p0")], [report("c0"), report("c1")])
    assert more[0].digest != with_critic([report("p0")], [report("c0")])[0].digest, "every rank counts"

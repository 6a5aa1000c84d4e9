"""The steps of the loop, with a scripted learner and a publisher that records its calls."""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agentrl.algorithms import resolve
from agentrl.algorithms.sample import TrainSequence
from agentrl.cluster.learners import Learners
from agentrl.cluster.signals import Stop, Stopped
from agentrl.cluster.workers import Workers
from agentrl.config.schema import Config
from agentrl.errors import LearnerError, RunError
from agentrl.metrics.statistics import Interval
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.trackers import Metrics, best_evaluation, read_steps
from agentrl.records.checkpoints import folder_of, steps_in
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.manifest import PluginSource, Wrapped, build_manifest, write_manifest
from agentrl.report.terminal import TerminalView
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.loop import closing
from agentrl.training.replay import ReplayPlan, stored_batches
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.training.session import Session
from agentrl.types import (
    EpisodeRequest,
    Segment,
    Signal,
    StepReport,
    StopReason,
    TokenSequence,
    Trajectory,
    Version,
    VersionSpan,
)
from agentrl.weights.publisher import Publisher, PublishTimings

CONFIG = Config.model_validate(
    {"steps": 6, "rollout": {"prompts": 1, "group_size": 2}, "track": {"tensorboard": False}}
)


class Learner:
    """A learner with a script: each step is an update, silent (no signal), nan (no finite gradient) or both."""

    def __init__(self) -> None:
        self.script: list[str] = []
        self.written, self.saves = asyncio.Event(), list[str]()
        self.failure: Exception | None = None
        self.written.set()

    async def step(self, batch: list[TrainSequence], state: dict[str, float], deadline_s: float) -> list[StepReport]:
        outcome, samples = self.script.pop(0), tuple(dict.fromkeys(s.sample for s in batch))
        return [
            StepReport(0.0, 1.0, 1e-5, 4, int(outcome in ("update", "both")), samples,
                       0.1, skipped_steps=int(outcome == "silent"), nonfinite_steps=int(outcome in ("nan", "both")))
        ]  # fmt: skip

    async def save(self, folder: Path, state: dict[str, float], deadline_s: float) -> None:
        self.saves.append(folder.name)
        self.make(folder)
        await self.written.wait()
        if self.failure:
            raise self.failure

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)


class Publications:
    """A publisher that records what is published."""

    def __init__(self) -> None:
        self.lock, self.published, self.yielded, self.kept = asyncio.Lock(), [Version(0, 0)], 0, 0
        self.failure: Exception | None = None

    async def yield_gpus(self) -> None:
        self.yielded += 1

    async def publish(self, version: Version) -> PublishTimings:
        if self.failure:
            raise self.failure
        self.published.append(version)
        return PublishTimings(mib=1.5)

    async def keep(self) -> PublishTimings:
        self.kept += 1
        return PublishTimings()


class Run:
    """A session whose episodes are sampled at once by the version published last; `equal` groups have no signal."""

    def __init__(self, folder: Path, algorithm: str = "grpo") -> None:
        rule = resolve(algorithm)()
        self.learner, self.publications, self.is_equal = Learner(), Publications(), False
        self.turns = 1
        self.journal = RunJournal(RunFolder(folder))
        self.journal.ledger.begin_incarnation()
        self.metrics = Metrics(RunFolder(folder), CONFIG)
        settings = rollout_settings(CONFIG, rule, env_plans(CONFIG, {"math": None}))
        scheduler = Scheduler(settings, self.sample, self.journal, Version(0, 0))
        self.session = Session(
            config=CONFIG, folder=RunFolder(folder), algorithm=rule, journal=self.journal,
            metrics=self.metrics, view=TerminalView(6), stop=Stop(), workers=cast(Workers, None),
            learners=cast(Learners, self.learner), publisher=cast(Publisher, self.publications), scheduler=scheduler,
            evaluation=None, version=Version(0, 0), step=0,
        )  # fmt: skip

    async def sample(self, request: EpisodeRequest) -> Trajectory:
        version = self.publications.published[-1]
        action = Segment((5, 6), True, (-0.5, -1.5), (VersionSpan(version, 0, 2),))
        reward = 1.0 if self.is_equal else float(request.sample.member)
        return Trajectory(
            request.sample, request.attempt, request.split, request.task_index, "0",
            (TokenSequence((Segment((1, 2), False), action)),) * self.turns, (), (Signal("right", reward),),
            StopReason.ENV_DONE, turns=self.turns, env=request.env,
        )  # fmt: skip

    async def step(self, outcome: str) -> None:
        if self.session.step == 0:
            self.session.scheduler.start()
        self.learner.script.append(outcome)
        batch = await self.session.sample()
        self.session.record(batch, await self.session.update(batch))

    async def close(self) -> None:
        await self.session.scheduler.stop()
        self.metrics.close()
        self.journal.close()


@pytest.fixture
async def run(tmp_path: Path) -> Any:
    made = Run(tmp_path)
    yield made
    await made.close()


async def test_a_step_that_moves_no_weight_publishes_nothing(run: Run) -> None:
    run.is_equal = True
    await run.step("silent")
    assert (run.publications.published, run.publications.yielded, run.publications.kept) == ([Version(0, 0)], 0, 1)
    run.is_equal = False
    await run.step("nan")
    assert (run.publications.published, run.publications.yielded, run.publications.kept) == ([Version(0, 0)], 1, 2)
    await run.step("update")
    assert run.publications.published == [Version(0, 0), Version(0, 1)]
    records = read_steps(run.session.folder)
    assert [r.published_mib for r in records] == [0.0, 0.0, 1.5]
    assert [(r.version, r.groups_mixed, r.staleness) for r in records] == [
        ("0.0", 0, (2,)), ("0.0", 1, (2,)), ("0.1", 1, (2,)),
    ]  # fmt: skip
    assert [r.entropy for r in records] == [1.0] * 3


async def test_an_environment_that_rewrites_its_history_is_named_once(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await run.step("update")
    assert "rewrites the history" not in capsys.readouterr().out
    run.turns = 3
    for _ in range(3):
        await run.step("update")
    said = capsys.readouterr().out
    assert said.count("rewrites the history") == 1
    assert "math: every turn begins a sequence of its own (3.0 per episode)" in said.replace("\n", " ")
    assert [r.sequences_mean for r in read_steps(run.session.folder)][-1] == 3.0


async def test_a_resume_counts_publications_not_steps(run: Run) -> None:
    for outcome in ("update", "silent", "update", "silent"):
        run.is_equal = outcome == "silent"
        await run.step(outcome)
    assert run.session.version == Version(0, 2)
    await run.session.scheduler.stop()
    assert run.journal.ledger.begin_incarnation(2) == 1
    assert run.journal.ledger.forks() == (0, 2)
    assert run.journal.ledger.published() == (0, 1)


async def test_every_baseline_is_accounted_for_and_none_is_trained(tmp_path: Path) -> None:
    run = Run(tmp_path, "remax")
    for _ in range(2):
        await run.step("update")
    await run.session.scheduler.stop()
    counts = run.journal.ledger.counts()
    assert (counts.dispatched, counts.trained, counts.baseline, counts.cancelled) == (9, 4, 2, 3)
    assert run.journal.verdict(read_steps(run.session.folder)).holds
    replayed = stored_batches(run.session.folder, ReplayPlan(0, tuple(read_steps(run.session.folder))))
    assert [[(len(g.trajectories), [t.sample.member for t in g.greedy]) for g in batch] for batch in replayed] == [
        [(2, [2])], [(2, [2])],
    ]  # fmt: skip
    run.journal.ledger.begin_incarnation(1)
    finished, attempts, _ = run.journal.restored()
    assert sorted(t.sample.member for t in finished) == [0, 1, 2]
    assert {sample.group for sample in attempts} >= {t.sample.group for t in finished}
    assert run.journal.verdict(read_steps(run.session.folder)).holds
    await run.close()


async def test_an_update_beside_one_that_was_skipped_is_no_reason_to_stop(run: Run, capsys: Any) -> None:
    for _ in range(3):
        await run.step("both")
    assert run.session.unstable_steps == 0
    assert "1 of 2 updates skipped: the gradient was not finite" in " ".join(capsys.readouterr().out.split())


async def test_gradients_that_are_not_finite_stop_the_run_after_a_few_in_a_row(run: Run) -> None:
    for outcome in ("nan", "nan", "update", "nan", "nan"):
        await run.step(outcome)
    with pytest.raises(
        LearnerError, match=r"not finite in 3 steps in a row, the last of them step 6: lower learner.lr"
    ):
        await run.step("nan")
    assert len(read_steps(run.session.folder)) == 6


@pytest.mark.parametrize("failure", [RunError("the disk is full"), PermissionError(13, "the disk is full")])
async def test_a_checkpoint_that_fails_at_the_end_hides_no_reason(
    failure: Exception, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise failure

    await run.step("update")
    monkeypatch.setattr(run.journal, "sync", fail)
    with pytest.raises(LearnerError, match="rank 0 died") as raised:
        async with closing(run.session):
            raise LearnerError("rank 0 died")
    assert raised.value.__notes__ == [f"closing failed too: {failure}"]
    with pytest.raises(type(failure), match="the disk is full"):
        async with closing(run.session):
            pass


async def test_an_old_checkpoint_that_cannot_be_removed_is_noted_and_ends_nothing(run: Run, capsys: Any) -> None:
    folder = run.session.folder.checkpoints
    for step in range(1, 4):
        (folder / f"step-00000{step}").mkdir(parents=True)
    (folder / "step-000000").touch()
    await run.step("update")
    await run.session.checkpoint()
    await run.session.saved()
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000", "step-000002", "step-000003"]
    assert "an old checkpoint cannot be removed: [Errno 20] Not a directory" in capsys.readouterr().out


def evaluated(step: int, score: float) -> EvaluationRecord:
    passed = Interval(score, score, score, "none")
    return EvaluationRecord(step, f"0.{step}", 0.0, "heldout", 8, 1, passed, passed, 1)


async def test_the_checkpoint_with_the_best_evaluation_outlives_newer_ones(run: Run) -> None:
    kept = []
    for step, score in enumerate((0.9, 0.4, 0.7, 0.7, math.nan, 0.6), 1):
        await run.step("update")
        if step > 1:  # the step that was evaluated best of all has no checkpoint
            folder_of(run.session.folder.checkpoints, step).mkdir(parents=True)
            await run.session.checkpoint()
            await run.session.saved()
            kept.append(steps_in(run.session.folder.checkpoints))
        run.metrics.evaluation(evaluated(step, score))
    assert kept == [[2], [2, 3], [3, 4], [4, 5], [4, 5, 6]]
    best = best_evaluation(run.session.folder)
    assert best is not None
    assert (best.step, best.pass_at_1.mean) == (4, 0.7)


async def test_a_checkpoint_is_written_while_the_next_batch_is_sampled_and_before_the_next_update(run: Run) -> None:
    await run.step("update")
    run.learner.written.clear()
    await run.session.checkpoint()
    batch = await run.session.sample()
    run.learner.script.append("update")
    update = asyncio.create_task(run.session.update(batch))
    await asyncio.sleep(0)
    refill = asyncio.create_task(run.publications.lock.acquire())  # as for an engine that was replaced
    await asyncio.sleep(0)
    assert (run.learner.saves, run.learner.script) == (["step-000001"], ["update"])
    assert not refill.done()
    run.learner.written.set()
    await refill
    assert run.learner.script == ["update"]
    run.publications.lock.release()
    await update
    assert (run.learner.script, run.session.step) == ([], 2)
    await run.session.close()
    assert (run.learner.saves, run.session.saved_step) == (["step-000001", "step-000002"], 2)


async def test_a_checkpoint_that_fails_while_the_next_batch_is_sampled_ends_the_run_once(run: Run) -> None:
    await run.step("update")
    run.learner.failure = LearnerError("the disk is full")
    await run.session.sample()

    async def sample() -> None:
        async with closing(run.session):
            await run.session.checkpoint()
            await run.session.sample()  # nothing more is sampled before an update

    with pytest.raises(LearnerError, match="the disk is full") as raised:
        await sample()
    assert not hasattr(raised.value, "__notes__")
    assert run.learner.saves == ["step-000001"]


async def test_a_step_whose_publication_fails_has_its_row(run: Run) -> None:
    await run.step("update")
    run.publications.failure = LearnerError("rank 0 is gone")
    with pytest.raises(LearnerError, match="rank 0 is gone"):
        async with closing(run.session):
            await run.step("update")
    assert steps_in(run.session.folder.checkpoints) == [2]
    assert [step.step for step in read_steps(run.session.folder)] == [1, 2]


async def waiting_update(run: Run) -> asyncio.Task[Any]:
    """The second update, which waits for the checkpoint of the first: it is written once `written` is set."""
    await run.step("update")
    run.learner.written.clear()
    await run.session.checkpoint()
    batch = await run.session.sample()
    update = asyncio.create_task(run.session.update(batch))
    await asyncio.sleep(0)
    return update


async def test_a_stop_while_an_update_waits_for_a_checkpoint_trains_nothing_more(run: Run) -> None:
    update = await waiting_update(run)
    run.session.stop.call(Stopped("SIGINT"))
    run.learner.written.set()
    with pytest.raises(Stopped, match="SIGINT"):
        await update
    await run.session.close()
    assert (run.learner.saves, run.session.step) == (["step-000001"], 1)


async def test_a_checkpoint_that_was_cut_is_not_begun_again(run: Run) -> None:
    update = await waiting_update(run)
    update.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update
    await run.session.close()
    assert run.learner.saves == ["step-000001"]


async def test_a_checkpoint_contains_the_environments_of_the_run(run: Run) -> None:
    folder = run.session.folder
    library = Wrapped("reasoning-gym", "0.1.26", "5e")
    env = PluginSource("rg:leg_counting", "agentrl-adapter-reasoning-gym", "0.1.0", "ab", wraps=(library,))
    write_manifest(folder, replace(build_manifest([env], [], {}), more_envs=(replace(env, name="math", wraps=()),)))
    await run.step("update")
    await run.session.checkpoint()
    await run.session.saved()
    path = folder.checkpoints / "step-000001" / "environments.json"
    found = msgspec.json.decode(path.read_bytes(), type=list[PluginSource])
    assert [(each.name, each.wraps) for each in found] == [("rg:leg_counting", (library,)), ("math", ())]


async def test_a_checkpoint_follows_a_sync_of_every_record(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    await run.step("update")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    await run.session.checkpoint()
    folder = run.session.folder
    assert {str(folder.audit), str(folder.metrics)} <= {*synced}
    assert any(path.startswith(str(folder.trajectories)) for path in synced)

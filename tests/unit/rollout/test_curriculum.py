"""The curriculum visits tasks by their solve rate, reproducibly, and sets aside those without a signal."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.rollout.curriculum import LEAST, Curriculum, chance, outcome_of
from agentrl.rollout.scheduler import Scheduler
from agentrl.rollout.task_order import EnvPlan, TaskSampler
from agentrl.types import EpisodeRequest, EpisodeSettings, GroupTask, Signal, StopReason, Trajectory, Version
from agentrl.types.outcomes import GroupOutcome, by_task, set_aside, solve_rate
from tests.unit.records.synthetic import trajectory as recorded
from tests.unit.rollout.test_scheduler import settings, settle_down
from tests.unit.rollout.test_scheduler import trajectory as episode

EPISODE = EpisodeSettings(1.0, 8, 0, 10.0, 10.0)
TASK = GroupTask("sums", 0, 3)


def visits(*solved: float, samples: int = 8, invalid: int = 0) -> list[GroupOutcome]:
    return [GroupOutcome(n, "sums", 3, "3", samples, count, invalid, 1) for n, count in enumerate(solved)]


@pytest.mark.parametrize(
    ("latest", "reason"),
    [
        (visits(0, 0), "never solved"),
        (visits(8, 8), "always solved"),
        (visits(0, 0, samples=0, invalid=8), "verifier fails"),
        (visits(0, 0, samples=0), "never scored"),
        (visits(0), None),
        (visits(0, 1), None),
        (visits(8, 7), None),
        (visits(0, samples=0, invalid=8), None),
    ],
)
def test_a_task_is_set_aside_only_when_every_sample_of_its_latest_visits_agrees(
    latest: list[GroupOutcome], reason: str | None
) -> None:
    assert set_aside(latest) == reason
    assert (chance(latest) == LEAST) == (reason is not None)


def test_only_the_latest_visits_count() -> None:
    [latest] = by_task(visits(8, 0, 0, 0, 0)).values()
    assert [visit.group for visit in latest] == [1, 2, 3, 4]
    assert set_aside(latest) == "never solved"
    assert solve_rate(visits(8, 4)) == 0.75


def test_a_group_that_a_resume_closes_again_counts_from_the_step_of_its_first_outcome() -> None:
    [first] = visits(4)
    curriculum = Curriculum(1, [dataclasses.replace(first, step=3)], step=2)
    assert curriculum.set_aside() == {}
    again = curriculum.observe(dataclasses.replace(first, solved=8.0, samples=16, step=7))
    assert (again.step, again.samples) == (3, 16)


def test_a_task_is_visited_in_proportion_to_its_learnability() -> None:
    def share(*solved: float) -> float:
        curriculum = Curriculum(1, visits(*solved), step=1)
        return sum(curriculum.is_visited(GroupTask("sums", epoch, 3)) for epoch in range(2000)) / 2000

    assert share() == 1.0
    assert share(4, 4) == 1.0
    p = (1 + 1) / (16 + 2)
    assert share(1, 0) == pytest.approx(4 * p * (1 - p), abs=0.04)
    assert share(0, 0) == pytest.approx(LEAST, abs=0.03), "it is tried again, because the policy learns"


def group(*rewards: float) -> list[Trajectory]:
    request = EpisodeRequest(recorded(0, 0).sample, 0, "train", 3, 0, EPISODE, "sums")
    return [episode(request, signals=(Signal("reward", reward),)) for reward in rewards]


def test_the_outcome_of_a_group_counts_solved_and_invalid_samples() -> None:
    down = (Signal.invalid("reward", "down"),)
    broken = [dataclasses.replace(t, signals=down) for t in group(0.0, 0.0)]
    [crashed] = [dataclasses.replace(t, stop_reason=StopReason.VERIFIER_ERROR, signals=()) for t in group(0.0)]
    outcome = outcome_of(5, TASK, [*group(1.0, 0.0, 0.0), *broken, crashed], 7)
    assert outcome == GroupOutcome(5, "sums", 3, "3", 3, 1.0, 3, 7)
    assert outcome_of(5, TASK, [], 7) is None


def test_an_episode_that_ends_before_it_is_scored_says_nothing_of_the_verifier() -> None:
    [done] = group(0.0)
    late = dataclasses.replace(done, stop_reason=StopReason.DEADLINE, signals=())
    silent = dataclasses.replace(done, stop_reason=StopReason.CONTEXT_OVERFLOW, sequences=())
    failed = dataclasses.replace(done, stop_reason=StopReason.ENV_ERROR, signals=())
    outcome = outcome_of(5, TASK, [late, silent, failed], 7)
    assert outcome == GroupOutcome(5, "sums", 3, "3", 0, 0.0, 0, 7)


def test_different_rewards_below_a_pass_are_a_signal() -> None:
    outcome = outcome_of(5, TASK, group(0.1, 0.4, 0.0, 0.2), 7)
    assert outcome is not None
    assert (outcome.samples, outcome.solved) == (4, 2.0)


class Learner:
    """Runs a scheduler on a ledger; tasks below 4 are sometimes solved, the others never; the verifier of 7 fails."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self.journal, self.asked = RunJournal(RunFolder(folder)), list[tuple[int, int, int]]()
        incarnation, self.step = self.journal.ledger.begin_incarnation(resumed_at), resumed_at or 0
        plan = EnvPlan("sums", EPISODE, 1, tasks=8)
        self.version = Version(incarnation, self.journal.ledger.published()[-1])
        ledger = self.journal.ledger
        all_may_fail = settings(envs=(plan,), prompts=4, group_size=8, has_curriculum=True, max_invalid=1.0)
        self.scheduler = Scheduler(
            all_may_fail, self.run, self.journal, self.version,
            ledger.published(), ledger.groups(), ledger.outcomes(), trained=self.step,
        )  # fmt: skip
        self.scheduler.restore(*self.journal.restored())
        self.scheduler.start()

    async def run(self, request: EpisodeRequest) -> Trajectory:
        if request.sample.member == 0:
            self.asked.append((request.sample.group, request.epoch, request.task_index))
        is_right = request.task_index < 4 and request.sample.member % 2 == 0
        signal = Signal.invalid("reward", "down") if request.task_index == 7 else Signal("reward", float(is_right))
        done = episode(request, self.version, signals=(signal,))
        await asyncio.sleep(0)
        return done

    async def train(self, steps: int) -> None:
        for _ in range(steps):
            batch = await self.scheduler.next_batch(5)
            self.step, self.version = self.step + 1, self.version.next
            samples = [t.sample for one in batch.groups for t in one.trajectories]
            self.journal.trained(self.version, self.step, [samples])
            self.scheduler.trained(self.version)

    async def stop(self) -> None:
        await self.scheduler.stop()
        self.journal.close()


async def test_tasks_without_a_signal_give_way_to_the_others(tmp_path: Path) -> None:
    learner = Learner(tmp_path)
    await learner.train(16)
    late = Counter(task < 4 for group, _, task in learner.asked if group >= 24)
    assert late[True] > 3 * late[False]
    assert learner.scheduler.set_aside() == {"never solved": 3, "verifier fails": 1}
    await learner.stop()


@pytest.mark.parametrize("resumed_at", [5, 6, 9])
async def test_a_resumed_run_visits_the_tasks_that_it_would_have_visited(resumed_at: int, tmp_path: Path) -> None:
    whole, cut = Learner(tmp_path / "whole"), Learner(tmp_path / "cut")
    await whole.train(14)
    await cut.train(9)
    await settle_down()  # the groups of the next step close, and that of task 7 is dropped
    await cut.stop()
    resumed = Learner(tmp_path / "cut", resumed_at=resumed_at)
    await resumed.train(14 - resumed_at)
    expected = {group: (epoch, task) for group, epoch, task in whole.asked}
    found = {group: (epoch, task) for group, epoch, task in cut.asked + resumed.asked}
    assert {group: expected[group] for group in range(56)} == {group: found[group] for group in range(56)}
    known = [learner.journal.ledger.outcomes() for learner in (whole, resumed)]
    assert [[(o.group, o.samples, o.invalid) for o in each if o.group < 56] for each in known] == [
        [(o.group, o.samples, o.invalid) for o in known[0] if o.group < 56]
    ] * 2
    for learner in (whole, resumed):
        await learner.stop()


def test_without_a_curriculum_every_task_is_visited() -> None:
    sampler = TaskSampler(1, (EnvPlan("sums", EPISODE, 1, tasks=8),))
    assert sorted(sampler.next().index for _ in range(16)) == sorted([*range(8)] * 2)

"""The scheduler bounds the age of samples, completes groups, loses nothing, and gives up after repeated failures."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pytest

from agentrl.algorithms import resolve
from agentrl.algorithms.driver import has_signal
from agentrl.errors import DeadlineError, RunError, WorkerLostError
from agentrl.planning.simulation.clock import run
from agentrl.rollout.faults import UNANSWERED_BATCHES
from agentrl.rollout.groups import RolloutSettings
from agentrl.rollout.scheduler import Scheduler
from agentrl.rollout.task_order import EnvPlan, TaskSampler
from agentrl.types import (
    Batch,
    DropReason,
    EpisodeRequest,
    EpisodeSettings,
    Group,
    GroupTask,
    SampleId,
    Segment,
    Signal,
    StopReason,
    TokenSequence,
    Trajectory,
    Version,
    VersionSpan,
)
from agentrl.types.outcomes import GroupOutcome

V0 = Version(0, 0)


class MemoryJournal:
    """A journal that checks the order of events as the ledger would."""

    def __init__(self) -> None:
        self.state: dict[tuple[SampleId, int], str] = {}
        self.reasons: dict[tuple[SampleId, int], str] = {}
        self.outcomes: list[GroupOutcome] = []

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        for request in requests:
            assert (request.sample, request.attempt) not in self.state
            living = [s for (sample, _), s in self.state.items() if sample == request.sample]
            assert not {"in_flight", "finished"} & set(living), "two living attempts at one sample"
            self.state[request.sample, request.attempt] = "in_flight"

    def finished(self, trajectory: Trajectory) -> None:
        key = (trajectory.sample, trajectory.attempt)
        assert self.state[key] == "in_flight"
        self.state[key] = "finished"

    def settled(self, attempts: Iterable[tuple[SampleId, int]], outcome: DropReason, reason: str) -> None:
        for key in attempts:
            assert self.state[key] in ("in_flight", "finished")
            self.state[key], self.reasons[key] = outcome, reason

    def observed(self, outcome: GroupOutcome) -> None:
        self.outcomes.append(outcome)

    def count(self, state: str) -> int:
        return sum(value == state for value in self.state.values())


class Workers:
    """A dispatcher whose episodes end when the test says so."""

    def __init__(self) -> None:
        self.open: dict[tuple[SampleId, int], tuple[EpisodeRequest, asyncio.Future[Trajectory]]] = {}
        self.started = asyncio.Event()

    async def __call__(self, request: EpisodeRequest) -> Trajectory:
        future: asyncio.Future[Trajectory] = asyncio.get_running_loop().create_future()
        self.open[request.sample, request.attempt] = (request, future)
        self.started.set()
        return await future

    def finish(self, sample: SampleId, version: Version = V0, attempt: int = 0, **changes: object) -> None:
        request, future = self.open.pop((sample, attempt))
        future.set_result(trajectory(request, version, **changes))

    def finish_group(self, group: int, version: Version = V0, **changes: object) -> None:
        for sample, attempt in [key for key in self.open if key[0].group == group]:
            self.finish(sample, version, attempt, **changes)

    def lose(self, sample: SampleId, attempt: int = 0) -> None:
        self.open.pop((sample, attempt))[1].set_exception(WorkerLostError("the worker died"))


def trajectory(request: EpisodeRequest, version: Version = V0, **changes: object) -> Trajectory:
    action = Segment((5, 6), True, (-0.5, -0.5), (VersionSpan(version, 0, 2),))
    fields: dict[str, object] = {
        "signals": (Signal("reward", float(request.sample.member % 2)),),
        "stop_reason": StopReason.ENV_DONE,
        "sequences": (TokenSequence((Segment((1, 2), False), action)),),
    }
    return Trajectory(
        sample=request.sample,
        attempt=request.attempt,
        split=request.split,
        task_index=request.task_index,
        task_id=str(request.task_index),
        env=request.env,
        messages=(),
        **(fields | changes),  # type: ignore[arg-type]
    )


def settings(tasks: int | None = None, **changes: object) -> RolloutSettings:
    plan = EnvPlan("sums", EpisodeSettings(1.0, 8, 0, 10.0, 10.0), 1, tasks=tasks, has_group_rewards=True)
    fields: dict[str, object] = {
        "seed": 1,
        "envs": (plan,),
        "prompts": 2,
        "group_size": 2,
        "max_staleness": 0,
        "on_stale": "drop",
        "max_invalid": 0.5,
    }
    return RolloutSettings(**(fields | changes))  # type: ignore[arg-type]


async def settle_down() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def before(groups: int) -> dict[int, GroupTask]:
    """The tasks of the groups that an earlier incarnation dispatched."""
    return {group: GroupTask("sums", 0, group) for group in range(groups)}


def asked(scheduler: Scheduler, sample: SampleId) -> EpisodeRequest:
    """The first request for a sample."""
    return scheduler.settings.request(GroupTask("sums", 0, sample.group), sample, 0)


def make(
    has_signal: Callable[[Group], bool] | None = None, groups_before: int = 0, **changes: object
) -> tuple[Scheduler, Workers, MemoryJournal]:
    workers, journal = Workers(), MemoryJournal()
    history = before(groups_before)
    scheduler = Scheduler(settings(**changes), workers, journal, V0, history=history, has_signal=has_signal)
    return scheduler, workers, journal


async def test_synchronous_sampling_waits_for_the_publication() -> None:
    scheduler, workers, _ = make()
    scheduler.start()
    await settle_down()
    assert {sample.group for sample, _ in workers.open} == {0, 1}
    workers.finish_group(0)
    workers.finish_group(1)
    batch = await scheduler.next_batch(1)
    await settle_down()
    assert [group.id for group in batch.groups] == [0, 1]
    assert not workers.open
    scheduler.trained(Version(0, 1))
    await settle_down()
    assert {sample.group for sample, _ in workers.open} == {2, 3}


@pytest.mark.parametrize("staleness", [0, 1, 3])
async def test_outstanding_groups_never_exceed_the_capacity(staleness: int) -> None:
    scheduler, workers, _ = make(max_staleness=staleness)
    scheduler.start()
    for step in range(6):
        await settle_down()
        assert scheduler.outstanding <= (staleness + 1) * 2
        for group in sorted({sample.group for sample, _ in workers.open}):
            workers.finish_group(group, Version(0, step))
        await scheduler.next_batch(1)
        scheduler.trained(Version(0, step + 1))


async def test_no_sample_over_the_bound_is_handed_out() -> None:
    scheduler, workers, journal = make(max_staleness=1)
    scheduler.start()
    await settle_down()
    for group in (1, 2):
        workers.finish_group(group)
    await scheduler.next_batch(1)
    scheduler.trained(Version(0, 1))
    scheduler.trained(Version(0, 2))
    await settle_down()
    workers.finish_group(0, Version(0, 0))
    for group in (3, 4):
        workers.finish_group(group, Version(0, 2))
    batch = await scheduler.next_batch(1)
    assert [group.id for group in batch.groups] == [3, 4]
    assert max(batch.ages) <= 1
    assert journal.count("stale") == 2


async def test_waiting_trains_in_order_of_dispatch_and_drops_nothing() -> None:
    scheduler, workers, journal = make(max_staleness=1, on_stale="wait")
    scheduler.start()
    await settle_down()
    for group in (1, 2, 3):
        workers.finish_group(group)
    with pytest.raises(DeadlineError, match="1 groups in flight, 3 buffered"):
        await scheduler.next_batch(0.01)
    workers.finish_group(0)
    assert [group.id for group in (await scheduler.next_batch(1)).groups] == [0, 1]
    assert journal.count("stale") == 0


async def test_one_stale_member_leaves_its_group_and_a_group_of_one_is_filtered() -> None:
    scheduler, workers, journal = make(max_staleness=1, group_size=3)
    scheduler.start()
    await settle_down()
    scheduler.trained(Version(0, 2))
    for member, n in enumerate((0, 1, 2)):
        workers.finish(SampleId(0, member), Version(0, n))
    for member, n in enumerate((0, 0, 2)):
        workers.finish(SampleId(1, member), Version(0, n))
    workers.finish_group(2, Version(0, 2))
    batch = await scheduler.next_batch(1)
    assert [(group.id, len(group.trajectories)) for group in batch.groups] == [(0, 2), (2, 3)]
    assert journal.count("stale") == 3
    assert journal.count("filtered") == 1


async def test_a_lost_worker_costs_an_attempt_not_a_sample() -> None:
    scheduler, workers, journal = make()
    scheduler.start()
    await settle_down()
    workers.lose(SampleId(0, 1))
    await settle_down()
    assert journal.state[SampleId(0, 1), 0] == "lost"
    workers.finish(SampleId(0, 1), attempt=1)
    workers.finish_group(0)
    workers.finish_group(1)
    batch = await scheduler.next_batch(1)
    assert [t.attempt for t in batch.groups[0].trajectories] == [0, 1]


async def test_attempts_that_a_run_interrupted_are_no_failures_of_the_sample() -> None:
    scheduler, workers, _ = make(groups_before=1, prompts=1)
    scheduler.restore([], {SampleId(0, member): 4 for member in range(2)})
    scheduler.start()
    await settle_down()
    for attempt in (5, 6):
        workers.lose(SampleId(0, 1), attempt)
        await settle_down()
    workers.finish_group(0)
    batch = await scheduler.next_batch(1)
    assert [t.attempt for t in batch.groups[0].trajectories] == [5, 7]


async def test_a_sample_that_is_lost_again_and_again_is_given_up() -> None:
    scheduler, workers, journal = make(prompts=1)
    scheduler.start()
    await settle_down()
    for attempt in range(3):
        workers.lose(SampleId(0, 1), attempt)
        await settle_down()
    workers.finish(SampleId(0, 0))
    await settle_down()
    assert journal.state[SampleId(0, 0), 0] == "filtered"
    assert {sample.group for sample, _ in workers.open} == {1}, "the place of the filtered group is filled"


async def test_an_invalid_sample_leaves_the_group() -> None:
    scheduler, workers, journal = make(group_size=3)
    scheduler.start()
    await settle_down()
    bad = (Signal.invalid("correct", "verifier died"),)
    workers.finish(SampleId(0, 1), signals=bad, stop_reason=StopReason.ENV_DONE)
    workers.finish_group(0)
    workers.finish_group(1)
    batch = await scheduler.next_batch(1)
    assert [t.sample.member for t in batch.groups[0].trajectories] == [0, 2]
    assert journal.reasons[SampleId(0, 1), 0] == "correct: verifier died"


async def test_a_run_of_invalid_samples_stops_with_the_cause() -> None:
    scheduler, workers, _ = make()
    scheduler.start()
    await settle_down()
    for group in (0, 1):
        workers.finish_group(group, stop_reason=StopReason.ENV_ERROR, signals=(), error="KeyError: 'x' in env.py:3")
    with pytest.raises(RunError, match=r"4 of the last 4 samples are invalid.*KeyError: 'x' in env.py:3"):
        await scheduler.next_batch(1)


MUTE = {"sequences": (), "signals": (), "stop_reason": StopReason.CONTEXT_OVERFLOW}


async def test_a_sample_without_an_answer_is_replaced_in_the_batch() -> None:
    scheduler, workers, journal = make(group_size=3)
    scheduler.start()
    await settle_down()
    workers.finish(SampleId(0, 1), **MUTE, error="the prompt has 90 tokens")
    workers.finish_group(0)
    workers.finish_group(1, **MUTE)
    await settle_down()
    workers.finish_group(2)
    batch = await scheduler.next_batch(1)
    assert [[t.sample.member for t in group.trajectories] for group in batch.groups] == [[0, 2], [0, 1, 2]]
    assert [group.id for group in batch.groups] == [0, 2]
    assert journal.count("unanswered") == 4
    assert journal.reasons[SampleId(0, 1), 0] == "the prompt has 90 tokens"
    assert journal.reasons[SampleId(1, 0), 0] == "context_overflow: no token was sampled"
    assert collections.Counter(outcome for outcome, *_ in batch.dropped) == {"unanswered": 4}


async def test_a_valid_reward_without_a_sampled_token_is_not_trained() -> None:
    scheduler, workers, journal = make(group_size=3)
    scheduler.start()
    await settle_down()
    empty = TokenSequence((Segment((1, 2), False), Segment((), True)))
    workers.finish(SampleId(0, 0), sequences=(empty,))
    workers.finish(SampleId(0, 1), sequences=())
    workers.finish_group(0)
    await settle_down()
    assert journal.count("unanswered") == 2
    assert journal.reasons[SampleId(0, 2), 0] == "too few members to compare"


async def test_a_lone_valid_member_is_trained_if_the_algorithm_compares_nobody() -> None:
    scheduler, workers, journal = make(prompts=1, group_size=2, min_valid=1, max_invalid=1.0)
    scheduler.start()
    await settle_down()
    for member in (0, 1):
        workers.finish(SampleId(0, member), signals=(Signal.invalid("reward", "no verdict"),))
    await settle_down()
    workers.finish(SampleId(1, 0), signals=(Signal.invalid("reward", "no verdict"),))
    workers.finish(SampleId(1, 1))
    batch = await scheduler.next_batch(1)
    assert [[t.sample for t in group.trajectories] for group in batch.groups] == [[SampleId(1, 1)]]
    assert (journal.count("invalid"), journal.count("filtered")) == (3, 0)


async def test_a_run_whose_prompts_are_all_too_long_stops_and_names_their_length() -> None:
    scheduler, workers, _ = make()
    scheduler.start()
    waiting = asyncio.ensure_future(scheduler.next_batch(5))
    groups = 0
    while not waiting.done():
        await settle_down()
        for group in sorted({sample.group for sample, _ in workers.open}):
            error = f"the prompt has {2000 + group} tokens and model.max_context is 1,024"
            workers.finish_group(group, **MUTE, error=error)
            groups += 1
    with pytest.raises(
        RunError,
        match=r"the last (\d+) samples are all unanswered.*\1 of \1: the prompt has 2000 tokens and model.max_context "
        r"is 1,024. Shorten the prompts, or raise --model.max_context",
    ):
        waiting.result()
    assert 0 <= groups - 2 * UNANSWERED_BATCHES <= scheduler.settings.prompts


async def test_a_run_goes_on_while_any_prompt_can_be_answered() -> None:
    scheduler, workers, journal = make()
    scheduler.start()
    waiting = asyncio.ensure_future(scheduler.next_batch(5))
    answered = (2 * UNANSWERED_BATCHES - 1, 4 * UNANSWERED_BATCHES - 2)
    while not waiting.done():
        await settle_down()
        for group in sorted({sample.group for sample, _ in workers.open}):
            workers.finish_group(group, **({} if group in answered else MUTE))
    assert [group.id for group in waiting.result().groups] == list(answered)
    assert journal.count("unanswered") == 2 * (answered[1] - 1)


def equal(group: Group) -> bool:
    return len({t.reward for t in group.trajectories}) == 1


@pytest.mark.parametrize("has_signal", [lambda group: not equal(group), partial(has_signal, resolve("dapo")())])
async def test_groups_without_a_signal_are_replaced_if_the_run_wants_it(has_signal: Callable[[Group], bool]) -> None:
    scheduler, workers, journal = make(max_filtered_batches=1, has_signal=has_signal)
    scheduler.start()
    await settle_down()
    workers.finish_group(0, signals=(Signal("reward", 1.0),))
    workers.finish_group(1)
    await settle_down()
    workers.finish_group(2)
    batch = await scheduler.next_batch(1)
    assert [group.id for group in batch.groups] == [1, 2]
    assert journal.count("filtered") == 2
    assert set(journal.reasons.values()) == {"no signal"}


async def test_a_run_that_has_learned_its_task_continues_without_a_signal() -> None:
    """No group has a signal. A batch is two groups, so four are replaced before two without a signal are accepted."""
    scheduler, workers, journal = make(max_filtered_batches=2, has_signal=lambda group: not equal(group), steps=2)
    scheduler.start()
    for step, (replaced, kept) in enumerate((((0, 1, 2, 3), (4, 5)), ((6, 7, 8, 9), (10, 11)))):
        for group in (*replaced, *kept):
            await settle_down()
            workers.finish_group(group, signals=(Signal("reward", 1.0),))
        batch = await scheduler.next_batch(1)
        assert [group.id for group in batch.groups] == list(kept)
        assert journal.count("filtered") == 2 * 4 * (step + 1)
        scheduler.trained(Version(0, 0))  # nothing moved, nothing was published
    assert scheduler.outstanding == 0


async def batch_of(scheduler: Scheduler, workers: Workers, version: Version = V0, **changes: object) -> Batch:
    """Wait for a batch with a deadline of 4 s, while a group comes back every second."""

    async def finish() -> None:
        for group in range(40):
            await asyncio.sleep(1)
            workers.finish_group(group, version, **changes)

    scheduler.start()
    finishing = asyncio.create_task(finish())
    try:
        return await scheduler.next_batch(4)
    finally:
        finishing.cancel()
        await scheduler.stop()


def test_the_deadline_of_a_batch_begins_again_with_every_group_that_counts() -> None:
    scheduler, workers, _ = make(has_signal=lambda group: group.id >= 8, prompts=1, max_filtered_batches=8)
    batch = run(batch_of(scheduler, workers))  # eight groups are replaced first
    assert [group.id for group in batch.groups] == [8]


@pytest.mark.parametrize(
    ("version", "changes"),
    [(Version(0, 3), {"stop_reason": StopReason.VERIFIER_ERROR}), (Version(0, 0), {})],
    ids=["invalid", "stale at once"],
)
def test_groups_that_cannot_be_trained_do_not_defer_the_deadline(version: Version, changes: dict[str, object]) -> None:
    async def failed_at() -> float:
        workers = Workers()
        scheduler = Scheduler(settings(prompts=1, max_invalid=1.0), workers, MemoryJournal(), Version(0, 3), trained=3)
        says = r"no batch of 1 groups, and none was added to it for 4 s: 1 groups in flight"
        with pytest.raises(DeadlineError, match=says):
            await batch_of(scheduler, workers, version, **changes)
        return asyncio.get_running_loop().time()

    assert run(failed_at()) == 4


def greedy(**changes: object) -> tuple[Scheduler, Workers, MemoryJournal]:
    """Groups of two samples and a baseline, which is member 2."""
    return make(prompts=1, group_size=2, greedy=1, min_valid=1, **changes)


async def test_a_baseline_is_sampled_greedily_and_comes_with_its_group() -> None:
    scheduler, workers, journal = greedy()
    scheduler.start()
    await settle_down()
    temperatures = {sample.member: request.settings.temperature for (sample, _), (request, _) in workers.open.items()}
    assert temperatures == {0: 1.0, 1: 1.0, 2: 0.0}
    for member in (0, 1):
        workers.finish(SampleId(0, member))
    await settle_down()
    with pytest.raises(DeadlineError):
        await scheduler.next_batch(0.01)
    workers.finish(SampleId(0, 2))
    batch = await scheduler.next_batch(1)
    [group] = batch.groups
    assert [t.sample.member for t in group.trajectories] == [0, 1]
    assert [t.sample.member for t in group.greedy] == [2]
    assert len(batch.ages) == 2
    assert journal.count("finished") == 3, "the journal settles the baseline when its group is trained"


@pytest.mark.parametrize("outcome", ["invalid", "unanswered", "lost"])
async def test_a_group_without_its_baseline_is_replaced(outcome: str) -> None:
    scheduler, workers, journal = greedy(max_invalid=1.0)
    scheduler.start()
    await settle_down()
    for member in (0, 1):
        workers.finish(SampleId(0, member))
    match outcome:
        case "invalid":
            workers.finish(SampleId(0, 2), signals=(Signal.invalid("reward", "no verdict"),))
        case "unanswered":
            workers.finish(SampleId(0, 2), **MUTE)
        case "lost":
            for attempt in range(3):
                workers.lose(SampleId(0, 2), attempt)
                await settle_down()
    await settle_down()
    workers.finish_group(1)
    batch = await scheduler.next_batch(1)
    assert [group.id for group in batch.groups] == [1]
    assert {journal.reasons[SampleId(0, member), 0] for member in (0, 1)} == {"no baseline to compare with"}
    assert journal.count("filtered") == 2
    assert journal.count(outcome) == (3 if outcome == "lost" else 1)


async def test_a_group_that_is_dropped_takes_its_baseline_with_it() -> None:
    scheduler, workers, journal = greedy(max_staleness=1)
    scheduler.start()
    await settle_down()
    workers.finish_group(0)
    await settle_down()
    scheduler.trained(Version(0, 2))
    await settle_down()
    workers.finish_group(1, Version(0, 2))
    assert [group.id for group in (await scheduler.next_batch(1)).groups] == [1]
    assert [journal.state[SampleId(0, member), 0] for member in range(3)] == ["stale", "stale", "filtered"]


async def test_an_old_baseline_serves_members_that_are_fresh() -> None:
    scheduler, workers, journal = greedy(max_staleness=1)
    scheduler.start()
    await settle_down()
    workers.finish(SampleId(0, 2))
    scheduler.trained(Version(0, 2))
    for member in (0, 1):
        workers.finish(SampleId(0, member), Version(0, 2))
    batch = await scheduler.next_batch(1)
    assert [len(group.greedy) for group in batch.groups] == [1]
    assert journal.count("stale") == 0
    assert max(batch.ages) == 0


async def test_a_resume_samples_only_the_baseline_that_is_missing() -> None:
    scheduler, workers, journal = greedy(groups_before=1)
    done = [trajectory(asked(scheduler, SampleId(0, member))) for member in (0, 1)]
    journal.state |= {(t.sample, 0): "finished" for t in done} | {(SampleId(0, 2), 0): "lost"}
    scheduler.restore(done, {SampleId(0, member): 0 for member in range(3)})
    scheduler.start()
    await settle_down()
    assert set(workers.open) == {(SampleId(0, 2), 1)}
    workers.finish(SampleId(0, 2), attempt=1)
    [group] = (await scheduler.next_batch(1)).groups
    assert (len(group.trajectories), len(group.greedy)) == (2, 1)


async def test_stopping_settles_every_open_attempt_and_keeps_the_finished() -> None:
    scheduler, workers, journal = make()
    scheduler.start()
    await settle_down()
    workers.finish(SampleId(0, 0))
    await settle_down()
    await scheduler.stop()
    assert journal.count("cancelled") == 3
    assert journal.count("finished") == 1
    assert journal.count("in_flight") == 0


async def test_a_resumed_group_runs_only_what_it_lacks() -> None:
    scheduler, workers, journal = make(groups_before=8)
    sample = SampleId(7, 0)
    done = trajectory(asked(scheduler, sample))
    journal.state[sample, 0] = "finished"
    journal.state[SampleId(7, 1), 0] = "lost"
    scheduler.restore([done], {sample: 0, SampleId(7, 1): 0})
    scheduler.start()
    await settle_down()
    assert {key for key in workers.open if key[0].group == 7} == {(SampleId(7, 1), 1)}
    workers.finish_group(7)
    workers.finish_group(8)
    assert [group.id for group in (await scheduler.next_batch(1)).groups] == [7, 8]


async def test_a_resumed_group_does_not_run_unanswered_samples_again() -> None:
    scheduler, workers, journal = make(group_size=3, groups_before=8)
    samples = [SampleId(7, member) for member in range(3)]
    done = [trajectory(asked(scheduler, sample)) for sample in samples[:2]]
    journal.state |= {(t.sample, 0): "finished" for t in done}
    scheduler.restore(done, dict.fromkeys(samples, 0), {samples[2]})
    scheduler.start()
    await settle_down()
    assert {sample.group for sample, _ in workers.open} == {8}
    workers.finish_group(8)
    batch = await scheduler.next_batch(1)
    assert [(group.id, len(group.trajectories)) for group in batch.groups] == [(7, 2), (8, 3)]


async def test_a_finished_sample_without_tokens_is_settled_on_resume() -> None:
    scheduler, workers, journal = make(group_size=2, groups_before=8)
    samples = [SampleId(7, member) for member in range(2)]
    mute = [trajectory(asked(scheduler, sample), sequences=()) for sample in samples]
    journal.state |= {(t.sample, 0): "finished" for t in mute}
    scheduler.restore(mute, dict.fromkeys(samples, 0))
    scheduler.start()
    await settle_down()
    assert journal.count("unanswered") == 2
    assert {sample.group for sample, _ in workers.open} == {8, 9}


async def test_a_group_that_was_cancelled_before_anything_came_back_runs_again() -> None:
    scheduler, workers, journal = make(groups_before=4)
    for member in (0, 1):
        journal.state[SampleId(3, member), 0] = "cancelled"
    scheduler.restore([], {SampleId(3, 0): 0, SampleId(3, 1): 0})
    scheduler.start()
    await settle_down()
    assert set(workers.open) == {(SampleId(3, 0), 1), (SampleId(3, 1), 1), (SampleId(4, 0), 0), (SampleId(4, 1), 0)}


async def test_a_resumed_run_dispatches_no_more_than_its_bound() -> None:
    scheduler, workers, journal = make(groups_before=6)
    done = [trajectory(asked(scheduler, SampleId(group, member))) for group in (3, 4) for member in (0, 1)]
    journal.state |= {(t.sample, 0): "finished" for t in done}
    journal.state |= {(SampleId(5, member), 0): "cancelled" for member in (0, 1)}
    scheduler.restore(done, dict(journal.state.keys()))
    scheduler.start()
    await settle_down()
    assert not workers.open, "two groups are buffered: more would be too old when their turn comes"
    await scheduler.next_batch(1)
    scheduler.trained(Version(0, 1))
    await settle_down()
    assert {(5, 1), (6, 0)} == {(sample.group, attempt) for sample, attempt in workers.open}


async def test_a_journal_that_fails_stops_the_run() -> None:
    class FullDisk(MemoryJournal):
        def finished(self, trajectory: Trajectory) -> None:
            raise RunError("the disk is full")

    workers = Workers()
    scheduler = Scheduler(settings(), workers, FullDisk(), V0)
    scheduler.start()
    await settle_down()
    workers.finish_group(0)
    with pytest.raises(RunError, match="the disk is full"):
        await scheduler.next_batch(1)


async def test_group_rewards_are_added_before_a_sample_counts_as_finished() -> None:
    workers, journal = Workers(), MemoryJournal()

    async def add_rank(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        assert journal.count("finished") == 0
        return [dataclasses.replace(t, signals=(*t.signals, Signal("rank", 1.0, scope="group"))) for t in members]

    scheduler = Scheduler(settings(prompts=1), workers, journal, V0, score_group=add_rank)
    scheduler.start()
    await settle_down()
    workers.finish_group(0)
    batch = await scheduler.next_batch(1)
    assert [t.reward for t in batch.groups[0].trajectories] == [1.0, 2.0]
    assert journal.count("finished") == 2


async def test_a_worker_lost_while_scoring_a_group_loses_the_group_not_the_samples() -> None:
    workers, journal = Workers(), MemoryJournal()
    failures = iter([WorkerLostError("gone")])

    async def score(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        for failure in failures:
            raise failure
        return members

    scheduler = Scheduler(settings(prompts=1), workers, journal, V0, score_group=score)
    scheduler.start()
    await settle_down()
    workers.finish_group(0)
    await settle_down()
    assert journal.count("lost") == 2
    assert {attempt for _, attempt in workers.open} == {1}
    workers.finish_group(0)
    batch = await scheduler.next_batch(1)
    assert batch.groups[0].id == 0
    assert [(outcome, why) for outcome, why, *_ in batch.dropped] == [("lost", "gone")] * 2


def ranked(members: Sequence[Trajectory]) -> list[Trajectory]:
    return [dataclasses.replace(t, signals=(*t.signals, Signal("rank", 1.0, scope="group"))) for t in members]


def stored(scheduler: Scheduler, journal: MemoryJournal, *members: int) -> list[Trajectory]:
    """Members of group 0 that an earlier incarnation scored."""
    requests = [asked(scheduler, SampleId(0, member)) for member in members]
    journal.dispatched(requests)
    back = ranked([trajectory(request) for request in requests])
    for one in back:
        journal.finished(one)
    return back


async def test_a_resume_does_not_score_a_group_again() -> None:
    workers, journal = Workers(), MemoryJournal()

    async def score(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        raise AssertionError("every member was scored before the resume")

    scheduler = Scheduler(settings(prompts=1), workers, journal, V0, score_group=score, history=before(1))
    back = stored(scheduler, journal, 0, 1)
    scheduler.restore(back, {t.sample: 0 for t in back})
    scheduler.start()
    batch = await scheduler.next_batch(1)
    assert [t.reward for t in batch.groups[0].trajectories] == [1.0, 2.0]


@pytest.mark.parametrize(("bound", "dropped"), [(8, 0), (0, 1)])
async def test_restored_tokens_are_counted_apart_from_those_sampled_now(bound: int, dropped: int) -> None:
    workers, journal = Workers(), MemoryJournal()
    changes = {"prompts": 2, "group_size": 1, "min_valid": 1, "max_staleness": bound, "on_stale": "wait"}
    scheduler = Scheduler(settings(**changes), workers, journal, Version(1, 3), (0, 3), history=before(1))
    [back] = stored(scheduler, journal, 0)
    newer = Segment((5, 6, 7), True, (-0.5,) * 3, (VersionSpan(Version(0, 4), 0, 3),))
    scheduler.restore([dataclasses.replace(back, sequences=(TokenSequence((newer,)),))], {back.sample: 0})
    scheduler.start()
    batch = await fed(scheduler, workers, Version(1, 3))
    assert len(batch.dropped) == dropped
    assert batch.restored_tokens == 3
    scheduler.trained(Version(1, 4))
    assert (await fed(scheduler, workers, Version(1, 4))).restored_tokens == 0
    await scheduler.stop()


async def fed(scheduler: Scheduler, workers: Workers, version: Version) -> Batch:
    """The next batch, with every episode finished by `version` as soon as it begins."""
    batch = asyncio.ensure_future(scheduler.next_batch(5))
    while not batch.done():
        await settle_down()
        for sample, attempt in list(workers.open):
            workers.finish(sample, version, attempt)
    return batch.result()


async def test_a_group_that_is_partly_back_scores_its_new_members_and_keeps_the_stored_rewards() -> None:
    workers, journal = Workers(), MemoryJournal()
    seen: list[int] = []

    async def score(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        assert not any(signal.scope == "group" for t in members for signal in t.signals)
        seen.append(len(members))
        return ranked(members)

    scheduler = Scheduler(settings(prompts=1), workers, journal, V0, score_group=score, history=before(1))
    scheduler.restore(stored(scheduler, journal, 0), {SampleId(0, 0): 0})
    scheduler.start()
    await settle_down()
    workers.finish_group(0)
    batch = await scheduler.next_batch(1)
    assert seen == [2]
    assert [t.reward for t in batch.groups[0].trajectories] == [1.0, 2.0]


async def test_a_group_that_every_member_gave_up_has_nothing_to_score() -> None:
    workers, journal = Workers(), MemoryJournal()

    async def score(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        return ranked([members[0], *members[1:]])

    scheduler = Scheduler(settings(prompts=1, max_attempts=1, max_invalid=1.0), workers, journal, V0, score_group=score)
    scheduler.start()
    await settle_down()
    workers.finish_group(0, signals=(), stop_reason=StopReason.INFRA_ERROR, error="step: the service is down")
    await settle_down()
    workers.finish_group(1)
    assert (await scheduler.next_batch(1)).groups[0].id == 1
    assert journal.count("invalid") == 2


async def test_a_sample_is_as_old_as_the_farthest_of_its_versions() -> None:
    """Incarnation 0 got to version 5; incarnation 1 began at its version 3. Version 0.5 is farther away than 0.4."""
    workers, journal = Workers(), MemoryJournal()
    scheduler = Scheduler(
        settings(prompts=1, max_staleness=2), workers, journal, Version(1, 3), (0, 3), history=before(1)
    )
    back = []
    for one in stored(scheduler, journal, 0, 1):
        segments = [Segment((1, 2), False)]
        spans = (VersionSpan(Version(0, 4), 0, 1), VersionSpan(Version(0, 6 if one.sample.member else 4), 1, 2))
        segments.append(Segment((5, 6), True, (-0.5, -0.5), spans))
        back.append(dataclasses.replace(one, sequences=(TokenSequence(tuple(segments)),)))
    scheduler.restore(back, {t.sample: 0 for t in back})
    assert [journal.state[SampleId(0, member), 0] for member in (0, 1)] == ["finished", "lost"]


async def test_a_sample_of_weights_that_a_resume_rolled_back_runs_again_in_its_group() -> None:
    """Incarnation 0 was killed after update 3, while group 1 was sampled; incarnation 1 began at its update 2."""
    workers, journal = Workers(), MemoryJournal()
    changes = {"prompts": 1, "max_staleness": 0, "on_stale": "wait"}
    scheduler = Scheduler(settings(**changes), workers, journal, Version(1, 2), (0, 2), history=before(2))
    trained, interrupted = asked(scheduler, SampleId(0, 0)), asked(scheduler, SampleId(1, 0))
    also = asked(scheduler, SampleId(0, 1))
    back = [trajectory(trained, Version(0, 2)), trajectory(also, Version(0, 2)), trajectory(interrupted, Version(0, 3))]
    journal.state |= {(t.sample, 0): "finished" for t in back} | {(SampleId(1, 1), 0): "lost"}
    scheduler.restore(back, {SampleId(group, member): 0 for group in (0, 1) for member in (0, 1)})
    scheduler.start()
    await settle_down()
    assert journal.state[SampleId(1, 0), 0] == "lost"
    assert not workers.open, "group 0 is trained first"
    batch = await scheduler.next_batch(1)
    assert ([group.id for group in batch.groups], batch.ages) == ([0], (0, 0))
    scheduler.trained(Version(1, 3))
    await settle_down()
    assert set(workers.open) == {(SampleId(1, 0), 1), (SampleId(1, 1), 1)}
    workers.finish_group(1, Version(1, 3))
    batch = await scheduler.next_batch(1)
    assert ([group.id for group in batch.groups], batch.ages) == ([1], (0, 0))
    await scheduler.stop()


async def test_stopping_before_a_group_is_scored_settles_its_members() -> None:
    workers, journal = Workers(), MemoryJournal()

    async def score(members: Sequence[Trajectory]) -> Sequence[Trajectory]:
        raise AssertionError("the group is not complete")

    scheduler = Scheduler(settings(prompts=1), workers, journal, V0, score_group=score)
    scheduler.start()
    await settle_down()
    workers.finish(SampleId(0, 0))
    await settle_down()
    await scheduler.stop()
    assert journal.count("cancelled") == 2


def test_the_same_seed_gives_the_same_tasks_and_epochs_differ() -> None:
    first, again, other = settings(tasks=5), settings(tasks=5), settings(tasks=5, seed=2)

    def requests(of: RolloutSettings, groups: int) -> list[EpisodeRequest]:
        sampler = TaskSampler(of.seed, of.envs)
        return [of.request(sampler.next(), SampleId(group, 0), 0) for group in range(groups)]

    def visited(of: RolloutSettings) -> list[int]:
        return [request.task_index for request in requests(of, 10)]

    assert visited(first) == visited(again) != visited(other)
    assert sorted(visited(first)[:5]) == sorted(visited(first)[5:]) == list(range(5))
    assert requests(first, 1)[0].seed != requests(first, 6)[5].seed

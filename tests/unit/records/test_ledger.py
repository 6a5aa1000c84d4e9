"""The ledger: every attempt in one state, no sample trained twice in a lineage, nothing lost by a kill."""

from __future__ import annotations

import dataclasses
import itertools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentrl.errors import RunError
from agentrl.records.ledger import Ledger, LedgerCounts, State
from agentrl.types import AttemptId, GroupTask, SampleId
from tests.unit.records.synthetic import request, trajectory

SAMPLE = SampleId(3, 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.begin_incarnation()
    yield ledger
    ledger.close()


def finish(ledger: Ledger, *samples: SampleId) -> None:
    ledger.dispatched([request(sample) for sample in samples])
    ledger.finished([trajectory(*sample) for sample in samples])


def bring_to(ledger: Ledger, state: State) -> None:
    """One attempt at SAMPLE in this state."""
    ledger.dispatched([request(SAMPLE)])
    if state in (State.CANCELLED, State.LOST):
        ledger.settle([(SAMPLE, 0)], state, "why")
    elif state is not State.IN_FLIGHT:
        ledger.finished([trajectory(*SAMPLE)])
        if state is State.TRAINED:
            ledger.trained([SAMPLE], 1)
        elif state is State.BASELINE:
            ledger.trained([], 1, baselines=[SAMPLE])
        elif state is not State.FINISHED:
            ledger.settle([(SAMPLE, 0)], state, "why")


def move_to(ledger: Ledger, state: State) -> None:
    if state is State.FINISHED:
        ledger.finished([trajectory(*SAMPLE)])
    elif state is State.TRAINED:
        ledger.trained([SAMPLE], 2)
    elif state is State.BASELINE:
        ledger.trained([], 2, baselines=[SAMPLE])
    else:
        ledger.settle([(SAMPLE, 0)], state, "why")


ENDS = [State.FILTERED, State.STALE, State.INVALID, State.UNANSWERED, State.CANCELLED, State.LOST]
LEGAL = {(State.IN_FLIGHT, s) for s in (State.FINISHED, State.CANCELLED, State.LOST)}
LEGAL |= {(State.FINISHED, s) for s in (State.TRAINED, State.BASELINE, *ENDS)}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, [s for s in State if s != "in_flight"])))
def test_an_attempt_moves_only_where_the_law_allows(ledger: Ledger, before: State, after: State) -> None:
    bring_to(ledger, before)
    if (before, after) in LEGAL:
        move_to(ledger, after)
        assert next(ledger.rows()).state is after
        return
    with pytest.raises(RunError):
        move_to(ledger, after)
    assert next(ledger.rows()).state is before


def test_a_row_tells_what_the_trajectory_was(ledger: Ledger) -> None:
    ledger.dispatched([request(SAMPLE)])
    episode = trajectory(*SAMPLE, turns=2, reward=0.5, version=4)
    ledger.finished([episode])
    row = next(ledger.rows())
    assert (row.sample, row.attempt, row.task_index, row.split) == (SAMPLE, 0, 3, "train")
    assert (row.oldest, row.tokens, row.turns, row.reward) == ("0.4", episode.action_tokens, 2, 0.5)
    assert row.finished_at is not None
    assert row.finished_at >= row.dispatched_at


def test_the_ledger_knows_the_task_of_every_group(ledger: Ledger) -> None:
    for group, env in enumerate(("guess", "math", "guess")):
        for member in (0, 1):
            asked = dataclasses.replace(request(SampleId(group, member)), env=env, epoch=group, task_index=10 + group)
            ledger.dispatched([asked])
    assert ledger.groups() == {0: GroupTask("guess", 0, 10), 1: GroupTask("math", 1, 11), 2: GroupTask("guess", 2, 12)}


def test_a_ledger_of_an_earlier_version_is_refused_as_such(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        db.execute("CREATE TABLE attempts (grp INTEGER, member INTEGER, state TEXT)")
    with pytest.raises(RunError, match="written by an earlier version of agentrl"):
        Ledger(tmp_path / "ledger.sqlite")


def test_an_invalid_sample_has_no_reward(ledger: Ledger) -> None:
    ledger.dispatched([request(SAMPLE)])
    ledger.finished([trajectory(*SAMPLE, reward=None)])
    assert next(ledger.rows()).reward is None


def test_a_sample_enters_one_lineage_once(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    ledger.trained([SAMPLE], 1)
    with pytest.raises(RunError):
        ledger.trained([SAMPLE], 2)
    with pytest.raises(RunError):
        ledger.dispatched([request(SAMPLE, attempt=1)])
    assert ledger.counts() == LedgerCounts(dispatched=1, trained=1)


def test_sqlite_itself_refuses_a_second_training(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    ledger.trained([SAMPLE], 1)
    ledger._db.execute("DROP TRIGGER only_known_moves")
    ledger._db.execute("UPDATE attempts SET state = 'finished', step = NULL")
    with pytest.raises(RunError, match="UNIQUE"):
        ledger.trained([SAMPLE], 2)


def test_the_same_sample_twice_in_one_batch_is_refused_whole(ledger: Ledger) -> None:
    other = SampleId(3, 2)
    finish(ledger, SAMPLE, other)
    with pytest.raises(RunError):
        ledger.trained([other, SAMPLE, SAMPLE], 1)
    assert ledger.counts() == LedgerCounts(dispatched=2, finished=2)


def test_a_call_with_one_bad_attempt_changes_nothing(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    with pytest.raises(RunError, match="1 of 2"):
        ledger.settle([(SAMPLE, 0), (SampleId(9, 9), 0)], State.STALE, "old")
    assert ledger.counts().finished == 1


def test_evaluation_never_enters(ledger: Ledger) -> None:
    with pytest.raises(RunError, match="train"):
        ledger.dispatched([request(SAMPLE, split="heldout")])
    assert ledger.counts().dispatched == 0


def test_a_sample_has_one_living_attempt_and_a_rerun_after_a_loss(ledger: Ledger) -> None:
    ledger.dispatched([request(SAMPLE)])
    with pytest.raises(RunError):
        ledger.dispatched([request(SAMPLE, attempt=1)])
    ledger.settle([(SAMPLE, 0)], State.LOST, "its worker died")
    ledger.dispatched([request(SAMPLE, attempt=1)])
    assert ledger.counts() == LedgerCounts(dispatched=2, in_flight=1, lost=1)


def test_a_resume_gives_back_what_was_trained_after_its_step(ledger: Ledger) -> None:
    samples = [SampleId(g, m) for g in range(4) for m in range(2)]
    finish(ledger, *samples)
    for step in (1, 2, 3):
        ledger.trained([s for s in samples if s.group == step - 1], step)
    ledger.dispatched([request(SampleId(4, 0))])
    assert ledger.begin_incarnation(1) == 1
    assert ledger.forks() == (0, 1)
    assert ledger.counts() == LedgerCounts(dispatched=9, finished=6, trained=2, lost=1, rolled_back=4)
    assert {sample for sample, _ in ledger.waiting()} == {s for s in samples if s.group >= 1}
    ledger.trained([s for s in samples if s.group == 1], 2)
    with pytest.raises(RunError):
        ledger.trained([SampleId(1, 0)], 3)
    assert max(ledger.groups()) == 4


def test_a_baseline_belongs_to_a_step_and_a_resume_gives_it_back_with_its_group(ledger: Ledger) -> None:
    samples = [SampleId(group, member) for group in range(2) for member in range(3)]
    finish(ledger, *samples)
    for step in (1, 2):
        ledger.trained([SampleId(step - 1, 0), SampleId(step - 1, 1)], step, baselines=[SampleId(step - 1, 2)])
    assert ledger.counts() == LedgerCounts(dispatched=6, trained=4, baseline=2)
    assert not ledger.waiting()
    with pytest.raises(RunError):
        ledger.dispatched([request(SampleId(0, 2), attempt=1)])
    with pytest.raises(RunError, match="1 samples of step 3"):
        ledger.trained([], 3, baselines=[SampleId(0, 2)])
    ledger.begin_incarnation(1)
    assert {sample for sample, _ in ledger.waiting()} == set(samples[3:])
    assert set(ledger.last_attempts()) == set(samples[3:])
    ledger.trained(samples[3:5], 2, baselines=samples[5:])
    assert ledger.counts() == LedgerCounts(dispatched=6, trained=4, baseline=2, rolled_back=2)


def test_a_resume_knows_the_last_attempt_of_every_sample_it_needs(ledger: Ledger) -> None:
    finish(ledger, SampleId(0, 0))
    ledger.dispatched([request(SampleId(0, 1)), request(SampleId(7, 0))])
    ledger.settle([(SampleId(0, 1), 0)], State.LOST, "its worker died")
    ledger.dispatched([request(SampleId(0, 1), attempt=1)])
    finish(ledger, SampleId(8, 0))
    ledger.trained([SampleId(8, 0)], 1)
    ledger.begin_incarnation(1)
    assert ledger.last_attempts() == {SampleId(0, 0): 0, SampleId(0, 1): 1, SampleId(7, 0): 0}


@pytest.mark.parametrize("end", [State.INVALID, State.UNANSWERED])
def test_a_group_of_which_nothing_came_is_not_handed_out_again_though_a_worker_was_lost(
    ledger: Ledger, end: State
) -> None:
    samples = [SampleId(5, 0), SampleId(5, 1)]
    ledger.dispatched([request(sample) for sample in samples])
    ledger.settle([(samples[1], 0)], State.LOST, "its worker died")
    ledger.dispatched([request(samples[1], attempt=1)])
    attempts = [(samples[0], 0), (samples[1], 1)]
    ledger.finished([trajectory(*sample, attempt) for sample, attempt in attempts])
    ledger.settle(attempts, end, "why")
    ledger.begin_incarnation(0)
    assert ledger.last_attempts() == {}


def test_what_no_attempt_will_answer_is_known(ledger: Ledger) -> None:
    finish(ledger, SampleId(5, 0), SampleId(5, 1))
    ledger.settle([(SampleId(5, 0), 0)], State.UNANSWERED, "the prompt has 90 tokens")
    assert ledger.unanswered() == {SampleId(5, 0)}
    assert ledger.last_attempts() == {SampleId(5, 0): 0, SampleId(5, 1): 0}


def test_a_run_starts_once(ledger: Ledger) -> None:
    with pytest.raises(RunError, match="begun already"):
        ledger.begin_incarnation()


def test_a_run_killed_before_its_first_record_can_be_resumed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.begin_incarnation(0) == 0
    assert ledger.forks() == (0,)
    ledger.close()


def test_a_checkpoint_without_its_ledger_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(RunError, match="cannot continue from step 5"):
        ledger.begin_incarnation(5)
    ledger.close()


def test_another_process_can_look_while_the_run_writes(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    reader = Ledger(ledger.path, is_read_only=True)
    assert reader.counts().finished == 1
    with pytest.raises(RunError, match="readonly"):
        reader.trained([SAMPLE], 1)
    reader.close()


def test_a_full_disk_is_named_and_nothing_is_half_written(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RunError, match=r"the disk is full.*agentrl resume"):
        ledger.dispatched([request(SampleId(100 + i, 0)) for i in range(5000)])
    assert ledger.counts() == LedgerCounts(dispatched=1, finished=1)


def test_a_sync_that_fails_is_explained(ledger: Ledger) -> None:
    finish(ledger, SAMPLE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(RunError, match="the ledger cannot be used"):
            ledger.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("not a database " * 100)
    with pytest.raises(RunError, match="cannot be used"):
        Ledger(path)
    with pytest.raises(RunError, match="no ledger"):
        Ledger(tmp_path / "none.sqlite", is_read_only=True)


WRITER = """
import sys
from pathlib import Path
from agentrl.records.ledger import Ledger
from agentrl.records.store import TrajectoryStore
from agentrl.types import SampleId
from tests.unit.records.synthetic import request, trajectory

folder = Path(sys.argv[1])
ledger, store = Ledger(folder / "ledger.sqlite"), TrajectoryStore(folder / "trajectories")
ledger.begin_incarnation()
for group in range(100_000):
    ledger.dispatched([request(SampleId(group, 0))])
    episode = trajectory(group, 0)
    store.append([episode])
    ledger.finished([episode])
    print(group, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    from agentrl.records.store import TrajectoryStore

    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            last = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split("\n")[:-1])])
    ledger = Ledger(tmp_path / "ledger.sqlite")
    waiting: list[AttemptId] = ledger.waiting()
    assert {(SampleId(group, 0), 0) for group in range(last + 1)} <= set(waiting)
    store = TrajectoryStore(tmp_path / "trajectories")
    assert set(waiting) <= set(store.ids())
    assert store.read(SampleId(last, 0), 0) == trajectory(last, 0)
    ledger.begin_incarnation(0)
    assert ledger.counts().in_flight == 0
    ledger.close()

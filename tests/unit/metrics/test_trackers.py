"""Records reach the run folder and the trackers, and a resumed run reads as one lineage."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

from agentrl.config.schema import Config, TrackSection
from agentrl.errors import RunError
from agentrl.metrics.statistics import Interval, wilson
from agentrl.metrics.step import EvaluationRecord, Learned, PhaseSeconds, StepRecord, step_record
from agentrl.metrics.trackers import Metrics, read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.types import Batch, DroppedSample, Group, SampleId, Version
from tests.unit.records.synthetic import learner_report, trajectory


def record(step: int, reward: float = 0.5, version: str = "0.1") -> StepRecord:
    report = learner_report(step, random.Random(step), (SampleId(1, 1),), tokens=600)
    return StepRecord(step, version, 1e9 + step, reward, 0.1, 8, report, PhaseSeconds(2.0, 3.0, 1.0), action_tokens=100)


def evaluation(step: int) -> EvaluationRecord:
    return EvaluationRecord(step, f"0.{step}", 1e9, "heldout", 10, 1, wilson(5, 10), wilson(5, 10), 1)


def test_a_step_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    metrics.step(record(1))
    metrics.evaluation(evaluation(1))
    assert len(folder.metrics.read_text().splitlines()) == 1
    assert json.loads(folder.metrics.read_text())["reward_mean"] == 0.5
    bare = dataclasses.replace(record(1).learner, samples=())
    assert read_steps(folder) == [dataclasses.replace(record(1), learner=bare)]
    assert read_evaluations(folder) == [evaluation(1)]
    metrics.close()


def test_a_step_done_again_after_a_resume_counts_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    for step, reward in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25), (3, 0.35)):
        metrics.step(record(step, reward))
    for step in (0, 2, 2):
        metrics.evaluation(evaluation(step))
    metrics.close()
    assert [(r.step, r.reward_mean) for r in read_steps(folder)] == [(1, 0.1), (2, 0.25), (3, 0.35)]
    assert [r.step for r in read_evaluations(folder)] == [0, 2]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    metrics.step(record(1))
    metrics.close()
    with folder.metrics.open("ab") as file:
        file.write(b'{"step": 2, "vers')
    metrics = Metrics(folder, Config())
    metrics.step(record(2))
    metrics.close()
    assert [r.step for r in read_steps(folder)] == [1, 2]


def test_numbers_that_json_does_not_know_come_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    nothing = Interval(math.nan, math.nan, math.nan, "none")
    loss = dataclasses.replace(record(1).learner, loss=-math.inf)
    metrics = Metrics(folder, Config())
    metrics.step(dataclasses.replace(record(1), learner=loss))
    metrics.evaluation(dataclasses.replace(evaluation(0), pass_at_k=nothing))
    metrics.close()
    assert [r.learner.loss for r in read_steps(folder)] == [-math.inf]
    [read] = read_evaluations(folder)
    assert math.isnan(read.pass_at_k.mean)
    assert read.pass_at_1 == evaluation(0).pass_at_1


def test_a_whole_line_of_another_kind_is_an_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": "one"}\n')
    with pytest.raises(RunError, match=r"metrics.jsonl, line 1: .*It was written by another version of agentrl"):
        read_steps(folder)


def test_a_line_that_is_no_json_is_an_error_with_its_number(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    metrics.evaluation(evaluation(1))
    metrics.close()
    with folder.evaluations.open("ab") as file:
        file.write(b"garbage")
    with pytest.raises(RunError, match=r"evaluations.jsonl, line 2: .*Delete the line"):
        read_evaluations(folder)


def test_a_line_torn_anywhere_is_skipped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    metrics.evaluation(dataclasses.replace(evaluation(1), signals={"größe → 1": 0.5}))
    metrics.close()
    line = folder.evaluations.read_bytes().rstrip()
    for size in range(len(line)):
        folder.evaluations.write_bytes(line[:size])
        assert read_evaluations(folder) == []


def test_every_sampled_token_is_counted_trained_or_dropped() -> None:
    r = dataclasses.replace(record(1), dropped_tokens=50)
    assert r.sampled_tokens == 150
    assert r.sampled_per_s == 75.0


def test_tokens_that_a_resume_restored_count_in_the_sum_and_in_no_rate() -> None:
    members = tuple(trajectory(0, member, version=3) for member in range(2))
    tokens = sum(member.action_tokens for member in members)
    batch = Batch(
        (Group(0, members),),
        (DroppedSample("stale", "old", 50, ""),),
        (0, 0),
        restored_tokens=members[0].action_tokens + 50,
    )
    r = step_record(4, Version(1, 4), batch, Learned((learner_report(4, random.Random(0)),), 1), PhaseSeconds(2.0, 3.0))
    assert r.sampled_tokens == tokens + 50
    assert r.sampled_per_s == members[1].action_tokens / 2.0
    assert r.tokens_per_s == members[1].action_tokens / 5.0


def test_tokens_of_a_baseline_are_sampled_and_not_trained() -> None:
    member, baseline = trajectory(0, 0), trajectory(0, 1)
    batch = Batch((Group(0, (member,), (baseline,)),), (), (0,))
    r = step_record(4, Version(0, 4), batch, Learned((learner_report(4, random.Random(0)),), 1), PhaseSeconds())
    assert (r.trained, r.action_tokens) == (1, member.action_tokens)
    assert r.sampled_tokens == member.action_tokens + baseline.action_tokens


def test_rates_are_tokens_over_the_seconds_of_their_phase() -> None:
    r = record(1)
    assert (r.sampled_per_s, r.trained_per_s) == (50.0, 200.0)
    assert r.tokens_per_s == pytest.approx(100 / 6)
    assert dataclasses.replace(r, seconds=PhaseSeconds()).sampled_per_s == 0.0
    waited = PhaseSeconds(rollout=0.001, learn=3.0, evaluate=1.0, checkpoint=1.0)
    assert dataclasses.replace(r, seconds=waited).sampled_per_s == pytest.approx(50.0, rel=1e-3), "it samples meanwhile"
    assert dataclasses.replace(r, staleness=(2, 0, 2)).staleness_mean == 1.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_every_curve(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config())
    metrics.step(record(1, 0.25))
    metrics.step(record(2, math.nan))
    metrics.evaluation(evaluation(2))
    metrics.close()
    events = EventAccumulator(str(folder.tensorboard)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25)]
    assert {"learner/entropy", "seconds/rollout", "staleness/mean", "eval/pass_at_1"} <= set(events.Tags()["scalars"])


def test_tensorboard_can_be_switched_off(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder, Config(track=TrackSection(tensorboard=False)))
    metrics.step(record(1))
    metrics.close()
    assert not folder.tensorboard.exists()

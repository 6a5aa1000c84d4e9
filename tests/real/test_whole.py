"""What a whole run tells of itself is true: every sample, every second, every pass."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from tests.real.runs import BATCH, Run
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

SOME_TOO_LONG = """
from agentrl.env import Env, Message, Task, reward

class SomeTooLong(Env):
    def tasks(self, split):
        return [Task(f"{split}/{n}", n) for n in range(6)]

    def setup(self, task, ctx):
        return [Message(role="user", content="x" * (400 if task.data % 3 == 0 else 4))]

    @reward
    def spoke(self, ctx):
        return float(len(ctx.turns[-1].text) % 2)

    @reward(weight=0.5, scope="group")
    def longest(self, episodes):
        longest = max(len(episode.text) for episode in episodes)
        return [float(len(episode.text) == longest) for episode in episodes]

    def success(self, ctx):
        return len(ctx.signals) == 1
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run of three steps that has ended."""
    run, env, model = Run(tmp_path / "run"), tmp_path / "some_too_long.py", tiny_model(tmp_path / "model")
    env.write_text(SOME_TOO_LONG)
    scored = ["--algorithm.kl_coef", "0.1", "--scorers.placement", "separate"]  # a replay scores on the learner's ranks
    run.train(model, "--env", str(env), "--steps", "3", "--checkpoint.every", "2", "--eval.tasks", "3", *scored)
    assert run.end(600) == 0, run.said
    yield run
    run.close()


def test_a_run_tells_every_sample_every_second_and_every_pass_and_replays_to_the_bit(run: Run) -> None:
    wall_s = time.monotonic() - run.began

    summary, folder = run.summary(), RunFolder(run.path)
    steps, counts = read_steps(folder), summary.counts
    assert summary.conservation.holds
    assert (counts.trained, counts.finished, counts.unanswered) == (3 * BATCH, 0, counts.dispatched - 3 * BATCH)
    assert sum(step.unanswered for step in steps) <= counts.unanswered
    assert {step.trained for step in steps} == {BATCH}
    trained = {row.sample: row.step for row in run.rows() if row.state == "trained"}
    assert trained == {sample: step.step for step in steps for sample in step.samples}
    reasons = {row.reason for row in run.rows() if row.state == "unanswered"}
    assert len(reasons) == 1
    assert "model.max_context is 256" in reasons.pop()

    assert summary.seconds.total == pytest.approx(summary.seconds_total)
    assert 0.9 * wall_s < summary.seconds_total < wall_s, "the interpreter's own end is what is missing"
    assert summary.seconds.other < 0.02 * summary.seconds_total
    assert set(summary.start_parts) == {"program", "ray", "engines", "workers", "learner", "first publication"}
    assert f"start {summary.seconds.start:.0f} s" in run.said

    for evaluation in read_evaluations(folder):
        assert (evaluation.invalid, evaluation.unanswered) == (0, evaluation.samples)
        assert evaluation.pass_at_1.mean == pytest.approx(2 / 3)
        assert set(evaluation.signals) == {"spoke", "longest"}

    replays(run, folder)


def replays(run: Run, folder: RunFolder) -> None:
    """The stored trajectories give the recorded weights from any checkpoint; other weights are noticed."""
    digests = [step.learner.digest for step in read_steps(folder)]
    assert run.replay().end(300) == 0, run.said  # from the checkpoint of step 2
    assert [line for line in run.said.splitlines() if "as recorded" in line] == [
        f"step 3 · {BATCH} sequences · weights {digests[2]}, as recorded"
    ]
    shutil.rmtree(folder.checkpoints / "step-000002")
    assert run.replay("--step", "2").end(300) == 0, run.said  # from the beginning
    assert all(f"weights {digest}, as recorded" in run.said for digest in digests[:2])
    folder.metrics.write_text(folder.metrics.read_text().replace(digests[1], "0" * 16))
    assert run.replay("--step", "2").end(300) == 2
    assert f"step 2: the weights are {digests[1]}, the run recorded {'0' * 16}" in run.said
    assert run.replay("--step", "4").end(60) == 2
    assert "there is no step 4 to replay" in run.said

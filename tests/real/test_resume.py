"""A run that is ended again and again comes to the digits of one that never was: scripted engine, real learner."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.metrics.trackers import read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.store import TrajectoryStore
from tests.real.runs import BATCH, Run, lawful
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

STEPS, EVERY = 5, 2
SHORT_ENV = """
from agentrl.env import Context, Env, Message, Task, reward

class Short(Env):
    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", n) for n in range(6)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"Say {task.data}.")]

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.turns[-1].text) % 3)
"""
Learned = tuple[int, str, dict[str, object], list[tuple[object, ...]]]


class ScriptedRuns:
    """Runs of one model and environment with the scripted engine, in synchronous mode."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._model, self._env = folder, tiny_model(folder / "model"), folder / "short_env.py"
        self._env.write_text(SHORT_ENV)
        self.made: list[Run] = []

    def begin(self, name: str, moment: str, number: signal.Signals) -> Run:
        """Start a run that gets a signal at a moment (see `scripted_run`)."""
        run = Run(self._folder / name, program(moment, number))
        self.made.append(run)
        flags = ["--env", str(self._env), "--steps", str(STEPS), "--checkpoint.every", str(EVERY)]
        flags += ["--rollout.max_staleness", "0", "--rollout.curriculum", "solve_rate", "--learner.lr", "1e-3"]
        return run.train(self._model, *flags, "--weights.verify", "false", "--algorithm.kl_coef", "0.1")

    @staticmethod
    def resume(run: Run, moment: str, number: signal.Signals) -> Run:
        run.program = program(moment, number)
        return run.resume()


def program(moment: str, number: signal.Signals) -> list[str]:
    return [sys.executable, "-m", "tests.real.scripted_run", moment, number.name]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ScriptedRuns]:
    runs = ScriptedRuns(tmp_path)
    yield runs
    for run in runs.made:
        run.close()


def learned(run: Run) -> list[Learned]:
    """What each step trained, in its order, and the weights that it gave."""
    folder = RunFolder(run.path)
    store, rows = TrajectoryStore(folder.trajectories), run.rows()
    attempts = {(row.step, row.sample): row for row in rows if row.state == "trained"}
    out: list[Learned] = []
    for record in read_steps(folder):
        trained: list[tuple[object, ...]] = []
        for sample in record.samples:
            row = attempts[record.step, sample]
            one = store.read(sample, row.attempt)
            tokens = tuple((segment.ids, segment.logprobs) for s in one.sequences for segment in s.segments)
            trained.append((sample, (row.env, row.epoch, row.task_index), tokens, one.reward))
        report = record.learner
        numbers: dict[str, object] = {"loss": report.loss, "grad_norm": report.grad_norm, "lr": report.lr}
        out.append((record.step, report.digest, numbers | report.meters, trained))
    return out


def test_a_run_that_was_stopped_and_killed_ends_with_the_digest_of_one_that_was_not(runs: ScriptedRuns) -> None:
    straight = runs.begin("straight", "never:0", signal.SIGTERM)
    assert straight.end() == 0, straight.said
    assert lawful(straight).counts.dispatched == STEPS * BATCH

    # stopped while step 2 is sampled, after one of its episodes: a checkpoint of step 1 is written
    run = runs.begin("resumed", f"rollout:{BATCH + 1}", signal.SIGTERM)
    assert run.end() == 128 + signal.SIGTERM, run.said
    assert run.checkpoints() == ["step-000001"]

    # killed while step 4 is sampled: step 3 has no checkpoint and is rolled back, and what it published with it
    runs.resume(run, f"rollout:{2 * BATCH + 2}", signal.SIGKILL)
    assert run.end() == -signal.SIGKILL, run.said
    assert (run.steps(), run.checkpoints()[-1]) == ([1, 2, 3], "step-000002")
    assert len(run.attempts("finished")) == 3

    # killed while step 3 is learned again: all its samples are finished
    runs.resume(run, "learn:0", signal.SIGKILL)
    assert run.end() == -signal.SIGKILL, run.said
    assert len(run.attempts("finished")) == BATCH

    runs.resume(run, "never:0", signal.SIGTERM)
    assert run.end() == 0, run.said
    summary = lawful(run)
    assert (summary.counts.trained, summary.counts.rolled_back) == (STEPS * BATCH, BATCH)
    assert learned(run) == learned(straight)
    assert len({digest for _, digest, *_ in learned(run)}) == STEPS

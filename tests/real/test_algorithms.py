"""Runs of algorithms with a critic, greedy baselines and reward models, whose processes are killed on the way."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from agentrl import Run as RunReader
from agentrl.learner.checkpoint import read_progress
from agentrl.records.checkpoints import folder_of
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import AttemptRow
from agentrl.records.restarts import read_restarts
from agentrl.reward_models.classifier import Classifier
from agentrl.reward_models.server import TOKEN
from agentrl.types import Trajectory, Version
from tests.real.runs import (
    BATCH,
    GROUP_SIZE,
    PROMPTS,
    RewardServer,
    Run,
    Stage,
    everybody_waits,
    lawful,
    pass_a_step,
    refused,
)
from tests.tiny import tiny_model, tiny_reward_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
STEPS = 3
EVERY_STEP = ("--steps", str(STEPS), "--checkpoint.every", "1")
KL_COEF, KL_TARGET = 0.1, 0.01
STATEFUL = ("--algorithm.kl_coef", str(KL_COEF), "--algorithm.kl_target", str(KL_TARGET))
STATEFUL += ("--algorithm.kl_horizon", str(BATCH), "--algorithm.normalize_rewards", "true")
STATEFUL += ("--algorithm.reference_every", "2", "--learner.lr", "1e-3")
"""An adaptive coefficient, a reference that moves and a running scale: each is part of a checkpoint."""
BASELINE, EPISODES = GROUP_SIZE, PROMPTS * (GROUP_SIZE + 1)
SERVED = "reward model helpful"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RewardServer]:
    monkeypatch.setenv(TOKEN, "a secret of the server")
    server = RewardServer(tiny_reward_model(tmp_path / "rm"))
    server.start()
    yield server
    server.close()


def test_ppo_goes_on_exactly_after_a_rank_the_reward_server_and_the_driver_are_killed(
    run: Run, stage: Stage, model: Path, server: RewardServer
) -> None:
    asked = f'[{{name = "helpful", url = "{server.url}", token_env = "{TOKEN}", weight = 0.5}}]'
    impatient = ("--reward.score_timeout_s", "10", "--rollout.max_invalid", "1")
    flags = (*EVERY_STEP, *STATEFUL, *impatient, "--reward.models", asked, "--learner.ranks", "2")
    run.train(model, *stage.flags, "--algo", "ppo", *flags)
    pass_a_step(run, stage, 1)

    # a rank, in the middle of the second step
    everybody_waits(run, stage)
    rank = run.pid("learner rank 1")
    os.kill(rank, signal.SIGSTOP)
    stage.release()
    run.until(lambda: len(run.attempts("finished")) == BATCH)
    os.kill(rank, signal.SIGKILL)
    assert "learner rank 1" in refused(run)

    # the server, before it scores the third batch
    run.resume()
    run.until(lambda: "step-000002" in run.checkpoints())
    everybody_waits(run, stage)
    server.kill()
    stage.release()
    run.until(lambda: len(run.attempts("invalid")) == BATCH)

    # the driver, with another third batch in flight
    everybody_waits(run, stage)
    run.kill()
    stage.release()

    server.start()
    run.resume()
    everybody_waits(run, stage)
    stage.release()
    assert run.end() == 0, run.said
    counts = lawful(run).counts
    assert run.remains() == []
    assert run.steps() == [1, 2, 3]
    assert (counts.trained, counts.invalid, counts.lost) == (STEPS * BATCH, BATCH, BATCH)
    assert counts.dispatched == counts.trained + counts.invalid + counts.lost

    unscored = [trajectory.signals[-1] for trajectory in trajectories(run, "invalid")]
    assert [signal.value for signal in unscored] == [None] * BATCH
    assert all(server.url in signal.reason for signal in unscored)
    assert_scored_by(server.path, trajectories(run, "trained"))
    assert_state_of_every_batch_once(run)
    assert_replayed_without_a_break(run)


def trajectories(run: Run, state: str) -> list[Trajectory]:
    """The stored trajectories whose attempts the ledger has in a state."""
    attempts = run.attempts(state)
    return [t for t in RunReader(run.path).trajectories() if (t.sample, t.attempt) in attempts]


def assert_scored_by(model: Path, scored: list[Trajectory]) -> None:
    """Every sample has the score that the reward model gives its conversation, whatever was killed in between."""
    classifier = Classifier(str(model), "cpu")
    own = [classifier.scores([classifier.encode(t.messages)])[0] for t in scored]
    assert len(set(own)) > 1
    assert [t.signals[-1].value for t in scored] == pytest.approx(own, abs=1e-5)


def assert_state_of_every_batch_once(run: Run) -> None:
    """The last checkpoint holds a state of the algorithm into which every batch went once, and a critic learned."""
    progress = read_progress(folder_of(RunFolder(run.path).checkpoints, STEPS))
    assert progress.updates == STEPS
    assert progress.state["reward_count"] == STEPS * BATCH
    meters = [step.learner.meters for step in RunReader(run.path).steps]
    errors = [min(max(of_step["reference_kl"] / KL_TARGET - 1, -0.2), 0.2) for of_step in meters]
    assert progress.state["kl_coef"] == pytest.approx(KL_COEF * math.prod(1 + error for error in errors))
    assert all(of_step["value_loss"] > 0 for of_step in meters)


def assert_replayed_without_a_break(run: Run) -> None:
    """Training on the stored trajectories, never interrupted, gives the weights of policy and critic at every step."""
    shutil.rmtree(RunFolder(run.path).checkpoints)
    assert run.replay().end() == 0, run.said
    assert run.said.count("as recorded") == STEPS


def test_remax_has_a_greedy_baseline_for_every_group_though_one_fails_and_processes_are_killed(
    run: Run, stage: Stage, model: Path, tmp_path: Path
) -> None:
    reward_model = tiny_reward_model(tmp_path / "rm")
    served = f'[{{name = "helpful", model = "{reward_model}", weight = 0.5}}]'
    run.train(model, *stage.flags, "--algo", "remax", *EVERY_STEP, "--reward.models", served)

    # the served reward model, before it scores the first batch
    everybody_waits(run, stage, EPISODES)
    os.kill(run.pid(SERVED), signal.SIGKILL)
    stage.release(EPISODES)
    run.until(lambda: "step-000001" in run.checkpoints())

    # a baseline fails: its group is replaced
    everybody_waits(run, stage, EPISODES)
    stage.fail(BASELINE)
    stage.release(EPISODES)
    everybody_waits(run, stage, GROUP_SIZE + 1)
    (failed,) = rows(run, "invalid")
    assert failed.member == BASELINE
    assert "the simulator broke" in failed.reason
    assert [(row.group, row.reason) for row in rows(run, "filtered")] == [
        (failed.group, "no baseline to compare with")
    ] * GROUP_SIZE

    # the driver, when the baseline of the new group is finished and its members are in flight
    stage.release(1, BASELINE)
    run.until(lambda: len(run.attempts("finished")) == GROUP_SIZE + 2)
    finished = run.attempts("finished")
    run.kill()
    stage.release()

    run.resume()
    everybody_waits(run, stage, GROUP_SIZE)
    assert not stage.waiting(BASELINE)
    stage.release()
    pass_a_step(run, stage, 3, EPISODES)
    assert run.end() == 0, run.said
    counts = lawful(run).counts
    assert run.remains() == []
    assert run.steps() == [1, 2, 3]
    assert (counts.trained, counts.baseline) == (STEPS * BATCH, STEPS * PROMPTS)
    assert (counts.invalid, counts.filtered, counts.lost) == (1, GROUP_SIZE, GROUP_SIZE)
    assert finished <= run.attempts("trained") | run.attempts("baseline")
    assert [restart.process for restart in read_restarts(RunFolder(run.path))] == [SERVED]

    baselines = rows(run, "baseline")
    assert {(row.step, row.group) for row in baselines} == {(row.step, row.group) for row in rows(run, "trained")}
    assert {row.member for row in baselines} == {BASELINE}
    assert_greedy(model, [t for t in trajectories(run, "baseline") if t.versions == {Version(0, 0)}])
    assert_scored_by(reward_model, trajectories(run, "trained") + trajectories(run, "baseline"))


def rows(run: Run, state: str) -> list[AttemptRow]:
    return [row for row in run.rows() if row.state == state]


def assert_greedy(model: Path, found: Iterable[Trajectory]) -> None:
    """Every sampled token is the most likely one under the initial model."""
    policy, checked = LlamaForCausalLM.from_pretrained(model), 0
    for sequence in (sequence for trajectory in found for sequence in trajectory.sequences):
        with torch.no_grad():
            best = policy(torch.tensor([sequence.ids])).logits[0].argmax(-1).tolist()
        for position, (_, is_action) in enumerate(pairwise(sequence.mask)):
            if is_action:
                assert sequence.ids[position + 1] == best[position]
                checked += 1
    assert checked > 0

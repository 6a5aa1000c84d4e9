"""A model that plays a role runs on an engine of its own, which is replaced when it dies, and is never trained."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from agentrl.records.folder import RunFolder
from agentrl.records.manifest import read_manifest
from agentrl.records.restarts import read_restarts
from agentrl.records.store import TrajectoryStore
from tests.real.runs import BATCH, Run, Stage, everybody_waits, lawful, refused
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ASKING_ENV = """
import asyncio, sys, uuid
from pathlib import Path
from agentrl.env import Context, Env, EnvConfig, Limits, Message, Reply, Task, Turn, reward, role

class StageConfig(EnvConfig):
    stage: str

class AskingEnv(Env):
    Config = StageConfig
    limits = Limits(max_turns=2, turn_timeout_s=600.0)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", n) for n in range(64)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"Say {task.data}.")]

    @role
    def partner(self, messages: list[Message]) -> str:
        return "Again."

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        if turn.index or "agentrl.env.dry_run.process" in sys.orig_argv:
            return Reply.end()
        card = Path(self.config.stage, f"{ctx.member}-{uuid.uuid4().hex}")
        card.touch()
        while card.exists():
            await asyncio.sleep(0.01)
        return Reply.say(await self.partner.ask("Go on."))

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.turns[-1].text) % 3)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The policy and its partner."""
    # With tied embeddings it would repeat the line break before its reply.
    partner = tiny_model(tmp_path_factory.mktemp("partner"), seed=1, tie=False)
    return tiny_model(tmp_path_factory.mktemp("policy")), partner


def test_a_model_plays_a_role_and_is_replaced_when_it_dies(run: Run, stage: Stage, models: tuple[Path, Path]) -> None:
    stage.env.write_text(ASKING_ENV)
    policy, partner = models
    flags = ["--roles.partner.model", str(partner), "--roles.partner.max_tokens", "8", "--steps", "2"]
    run.train(policy, *stage.flags, *flags)
    everybody_waits(run, stage)
    stage.release()
    everybody_waits(run, stage)  # all of them were answered, and a step was trained

    core = run.pid(f"engine of {partner}")
    os.kill(core, signal.SIGSTOP)
    stage.release()
    os.kill(core, signal.SIGKILL)
    assert run.end() == 0, run.said

    assert lawful(run).counts.trained == 2 * BATCH
    folder = RunFolder(run.path)
    assert [restart.process for restart in read_restarts(folder)] == [f"engine of {partner}"]
    manifest = read_manifest(folder)
    assert manifest is not None
    assert f"role model {partner}" in manifest.models
    with closing(TrajectoryStore(folder.trajectories)) as store:
        trained = [store.read(row.sample, row.attempt) for row in run.rows() if row.state == "trained"]
    assert {trajectory.roles["partner"].calls for trajectory in trained} == {1}
    assert min(trajectory.roles["partner"].completion_tokens for trajectory in trained) >= 1
    assert run.remains() == []


def test_a_judge_shares_the_engine_of_a_role(run: Run, stage: Stage, models: tuple[Path, Path]) -> None:
    """The answers of a random model have no score, so that the signal has no weight here."""
    stage.env.write_text(ASKING_ENV)
    policy, partner = models
    judge = f'name = "honest", model = "{partner}", judge = true, prompt = "{{conversation}}", weight = 0.0'
    own = 'name = "own", model = "policy", judge = true, prompt = "{conversation}", weight = 0.0'
    flags = ["--reward.models", f"[{{{judge}, max_context = 320}}, {{{own}}}]", "--model.max_context", "320"]
    flags += ["--roles.partner.model", str(partner), "--roles.partner.max_tokens", "8", "--steps", "1"]
    run.train(policy, *stage.flags, *flags)
    everybody_waits(run, stage)
    assert run.pid(f"engine of {partner}")
    stage.release()
    assert run.end() == 0, run.said
    assert lawful(run).counts.trained == BATCH
    with closing(TrajectoryStore(RunFolder(run.path).trajectories)) as store:
        trained = [store.read(row.sample, row.attempt) for row in run.rows() if row.state == "trained"]
    for trajectory in trained:
        signals = {signal.name: signal for signal in trajectory.signals}
        assert all(signals[name].evidence["answer"] for name in ("honest", "own")), trajectory.signals
    assert run.remains() == []


def test_a_model_of_a_role_that_does_not_exist_is_refused_at_once(
    run: Run, stage: Stage, models: tuple[Path, Path]
) -> None:
    stage.env.write_text(ASKING_ENV)
    run.train(models[0], *stage.flags, "--roles.partner.model", "./nowhere")
    assert "roles.partner.model: model './nowhere': there is no such folder" in refused(run)

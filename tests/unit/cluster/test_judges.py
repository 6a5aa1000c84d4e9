"""A judge of the run is asked on an engine of its own, or of the policy, through the rollout workers."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.reward_models import RewardModels
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import Worker
from agentrl.cluster.workers import Fleets, Workers
from agentrl.config.schema import POLICY, Config
from agentrl.engine.scripted import Raise, Script, ScriptedEngine
from agentrl.engine.server import EngineServer
from agentrl.errors import EngineError, WorkerLostError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts, read_restarts
from agentrl.roles import RoleReply
from agentrl.rollout.slots import Slots
from tests.tiny import tiny_model, tiny_tokenizer
from tests.unit.cluster.test_engines import Process, Processes
from tests.unit.cluster.test_reward_models import episode
from tests.unit.cluster.test_worker_process import ENV

PROMPT = "Grade:{conversation}"


@dataclass
class Court:
    """The reward models of a run whose judges are on scripted engines, and its workers."""

    models: RewardModels
    processes: Processes
    engines: dict[str, ScriptedEngine]


@pytest.fixture(autouse=True)
def _threshold() -> Iterator[None]:
    """Undo what the process of a worker does to the garbage collector."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@asynccontextmanager
async def court(folder: Path, *models: dict[str, Any], **scripts: Script) -> AsyncIterator[Court]:
    """Start the engines called by the names of `scripts`, "judge" for the folder of that name, and two workers."""
    tokens = tiny_tokenizer()
    for name in ("model", "judge"):
        tiny_model(folder / name)
    (folder / "env.py").write_text(ENV)
    encode = partial(tokens.encode, add_special_tokens=False)
    engines = {
        name: await ScriptedEngine.ready(script, encode=encode, vocab_size=len(tokens), max_model_len=10_000)
        for name, script in scripts.items()
    }
    fleets = {
        name if name == POLICY else str(folder / name): [EngineServer(engine)] for name, engine in engines.items()
    }
    sections = {"env": [{"name": str(folder / "env.py")}], "reward": {"models": models}}
    config, stop, processes = Config.model_validate(sections), Stop(), Processes()

    def spec_of(given: Fleets, worker_id: int) -> ActorSpec:
        return ActorSpec(f"worker {worker_id}", Worker, (f"w{worker_id}", given, config, str(folder / "model")))

    records = Restarts(RunFolder(folder), 5, lambda _: None)
    workers = Workers(cast(Cluster, processes), spec_of, 2, records, Slots({}))
    await workers.start(cast(Fleets, {POLICY: (), **fleets}))

    async def ask(name: str, question: str) -> RoleReply:
        return await workers.judged(name, question, 30.0)

    reward_models = RewardModels(cast(Cluster, processes), config, folder, records, stop, ask)
    try:
        yield Court(reward_models, processes, engines)
    finally:
        await workers.close()
        await reward_models.close()
        records.close()


def judge(folder: Path, **keys: Any) -> dict[str, Any]:
    return {"name": "honest", "model": str(folder / "judge"), "judge": True, "prompt": PROMPT} | keys


async def test_a_judge_on_an_engine_scores_an_episode(tmp_path: Path) -> None:
    heard: list[str] = []

    def script(prompt: tuple[int, ...], number: int) -> str:
        heard.append(tiny_tokenizer().decode(prompt))
        return "Score: 9"

    async with court(tmp_path, judge(tmp_path, weight=0.1), judge=script) as run:
        scored = await run.models.rewarded(episode())
    [signal] = scored.signals[1:]
    assert (signal.name, signal.value, signal.weight, signal.valid) == ("honest", 9.0, 0.1, True), signal.reason
    assert signal.evidence == {"answer": "Score: 9"}
    assert "Grade:<conversation" in heard[0]
    assert "[assistant]\nseven" in heard[0]


async def test_the_policy_judges_with_its_own_engines_and_each_turn(tmp_path: Path) -> None:
    keys = judge(tmp_path, model=POLICY, scope="turn")
    async with court(tmp_path, keys, policy=["Score: 1", "Score: 2"]) as run:
        scored = await run.models.rewarded(episode())
    assert sorted((s.turn, s.valid) for s in scored.signals[1:]) == [(0, True), (1, True)]
    assert sorted(s.value or 0.0 for s in scored.signals[1:]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("script", "keys", "reason"),
    [
        (["I like it."], {}, "the judge's answer has no score"),
        ([Raise(EngineError("broken"))], {}, "broken"),
        (["Score: 9"], {"max_context": 8}, "of at most 8 (max_context of reward.models honest): no room is left"),
    ],
)
async def test_a_judge_without_a_score_makes_the_sample_invalid(
    tmp_path: Path, script: Script, keys: dict[str, Any], reason: str
) -> None:
    async with court(tmp_path, judge(tmp_path, **keys), judge=script) as run:
        scored = await run.models.rewarded(episode())
    [signal] = scored.signals[1:]
    assert (signal.value, scored.is_valid) == (None, False)
    assert reason in signal.reason


async def test_a_question_is_asked_again_when_the_process_that_asked_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Process.call

    async def lost(self: Process, method: str, *args: Any, deadline_s: float) -> Any:
        if method == "judged" and self is run.processes.spawned[0]:
            raise WorkerLostError("its process died")
        return await call(self, method, *args, deadline_s=deadline_s)

    async with court(tmp_path, judge(tmp_path), judge=["Score: 4"]) as run:
        monkeypatch.setattr(Process, "call", lost)
        assert (await run.models.rewarded(episode())).signals[1].value == 4.0
        assert len(run.processes.spawned) == 3
    assert [restart.process for restart in read_restarts(RunFolder(tmp_path))] == ["worker 0"]

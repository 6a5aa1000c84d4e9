"""Environments of other libraries run in the worker of training, with a scripted engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import EnvDriver, close_shared, make_env
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import EpisodeRequest, StopReason, Trajectory
from tests.unit.rollout.cases import Listening, check_law_1, request
from tests.unit.rollout.templates import encode, tokenizer

CASES = [
    ("reasoning_gym", "rg:leg_counting", {"size": 30}),
    ("gymnasium", "gym:FrozenLake-v1", {"is_slippery": False}),
]
GUESSES = ["[1 2 3 4]", "[3 4 5 6]"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("library", "name", "options"), CASES)
async def test_the_oracle_of_an_adapter_is_recorded_and_paid(
    library: str, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: {name} cannot run")
    tokenizer().save_pretrained(tmp_path)
    order = request(task_index=0, max_tokens=200, episode_timeout_s=100.0, turn_timeout_s=50.0)
    env = make_env(name, **options)
    task = await EnvDriver(env).task("train", 0, order.seed)
    trajectory = await worked(name, options, list(env.oracle(task)), order, tmp_path)
    assert (trajectory.reward, trajectory.stop_reason, trajectory.error) == (1.0, StopReason.ENV_DONE, "")


@pytest.mark.timeout(180)
async def test_a_game_without_an_oracle_is_recorded_to_its_last_turn(tmp_path: Path) -> None:
    pytest.importorskip("textarena", reason="textarena is not installed: textarena:Mastermind-v0 cannot run")
    tokenizer().save_pretrained(tmp_path)
    order = request(task_index=0, max_tokens=200, episode_timeout_s=100.0, turn_timeout_s=50.0)
    trajectory = await worked("textarena:Mastermind-v0", {"turns": 2}, GUESSES, order, tmp_path)
    assert (trajectory.turns, trajectory.stop_reason, trajectory.error) == (2, StopReason.MAX_TURNS, "")


async def worked(
    name: str, options: dict[str, Any], script: list[str], order: EpisodeRequest, model: Path
) -> Trajectory:
    """The trajectory of a worker whose engine says the script; it keeps law 1."""
    engine = Listening(
        await ScriptedEngine.ready(script, encode=lambda text: encode(tokenizer(), text), vocab_size=len(tokenizer()))
    )
    worker = RolloutWorker(name, options, str(model), engine, max_context=20_000)
    trajectory = await asyncio.wait_for(worker.run(order), 150)
    await worker.close()
    await close_shared()
    check_law_1(trajectory, engine.calls)
    return trajectory

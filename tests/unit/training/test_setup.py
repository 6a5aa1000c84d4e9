"""Training and evaluation follow the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentrl.algorithms import algorithms
from agentrl.cluster.actors import Actors
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import vllm_spec
from agentrl.config.schema import Config
from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.report.terminal import TerminalView
from agentrl.training import setup
from agentrl.training.inputs import RunInputs, algorithm_of
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.training.setup import evaluation_of, open_evaluation, publisher_of
from agentrl.types import Version


def config(**sections: object) -> Config:
    return Config.model_validate(sections)


def test_an_evaluation_plays_training_episodes_at_its_own_temperature_and_asks_for_success() -> None:
    made = config(rollout={"max_tokens": 9, "max_turns": 3, "temperature": 1.5}, eval={"temperature": 0.2})
    [plan], [held_out] = env_plans(made, {"math": None}), evaluation_of(made, {"math": None}).envs
    training, evaluation = plan.episode, held_out.episode
    assert (training.max_tokens, training.max_turns, training.temperature, training.asks_success) == (9, 3, 1.5, False)
    assert (evaluation.max_tokens, evaluation.max_turns, evaluation.temperature) == (9, 3, 0.2)
    assert evaluation.asks_success


def test_an_evaluation_takes_no_more_tasks_than_the_split_has() -> None:
    assert evaluation_of(config(eval={"tasks": 64}), {"math": 10}).tasks == 10
    assert evaluation_of(config(eval={"tasks": 64}), {"math": 100}).tasks == 64
    assert evaluation_of(config(eval={"tasks": 64}), {"math": None}).tasks == 64


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_a_group_trains_when_it_has_as_many_members_as_the_algorithm_compares(name: str) -> None:
    made = config(
        rollout={"group_size": 8}, algorithm={"name": name, **({"teacher": "m"} if name == "distillation" else {})}
    )
    compares_nobody = name in ("distillation", "ppo", "reinforce++", "remax")
    assert rollout_settings(made, algorithm_of(made), env_plans(made, {"math": None})).min_valid == (
        1 if compares_nobody else 2
    )


class Engines:
    """Engines of which none is up; they record who has the GPUs."""

    def __init__(self) -> None:
        self.turns: list[str] = []

    def serving(self) -> dict[int, Any]:
        return {}

    async def sleep(self, _deadline_s: float) -> None:
        self.turns.append("learner")

    async def wake(self, _deadline_s: float) -> None:
        self.turns.append("engines")


@pytest.mark.parametrize(("placement", "turns"), [("colocate", ["engines", "learner", "engines"]), ("separate", [])])
async def test_engines_give_way_to_a_learner_on_their_gpus_alone(placement: str, turns: list[str]) -> None:
    made, engines = config(engine={"placement": placement}, weights={"verify": False}), Engines()
    learners = SimpleNamespace(buckets=None, send=None, logprobs=None)
    team = SimpleNamespace(engines=engines, learners=learners, agents=SimpleNamespace(folder=Path()))
    publisher = publisher_of(made, Path(), cast(Actors, team))
    await publisher.publish(Version(0, 0))
    await publisher.yield_gpus()
    await publisher.publish(Version(0, 1))
    assert engines.turns == turns


async def test_engines_of_an_evaluation_take_weights_from_shared_memory_on_gpus_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no learner that would send them."""
    given: list[Config] = []

    @asynccontextmanager
    async def actors(config: Config, *_: object, **_options: object) -> AsyncIterator[Actors]:
        given.append(config)
        raise RunError("no processes")
        yield

    monkeypatch.setattr(setup, "actors", actors)
    made, inputs = config(weights={"transfer": "nccl"}), RunInputs((), tmp_path, "")
    with pytest.raises(RunError, match="no processes"):
        async with open_evaluation(made, inputs, RunFolder(tmp_path), Stop(), TerminalView(0), "test"):
            pass
    assert [vllm_spec(each, tmp_path).transfer for each in given] == ["shm"]

"""Training and evaluation follow the configuration."""

from __future__ import annotations

import pytest

from agentrl.algorithms import algorithms
from agentrl.config.schema import Config
from agentrl.training.inputs import algorithm_of
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.training.setup import evaluation_of


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

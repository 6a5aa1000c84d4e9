"""One word places every role that a run has; a role's own key wins, and messages name the key that decided."""

from __future__ import annotations

import pytest

from agentrl.config.loading import Setting
from agentrl.config.machine import Machine
from agentrl.config.resolve import explain, resolve_run
from agentrl.config.schema import Config
from agentrl.config.validate import other_gpus
from agentrl.errors import ConfigError
from agentrl.planning.fit import fitted_run
from agentrl.planning.placement import placed
from agentrl.training.eval_config import evaluation_config
from agentrl.training.inputs import algorithm_of
from tests.unit.config.test_resolve import LAPTOP
from tests.unit.planning.published import config, gpus

SERVED = '[{name = "rm", model = "Qwen2.5-0.5B"}]'
PPO = {"algo": "ppo", "algorithm__kl_coef": 0.1}


def places(made: Config) -> tuple[str, str | None, str | None]:
    return made.engine.placement, made.critic.placement, made.scorers.placement


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (PPO, ("auto", "colocate", "colocate")),
        (PPO | {"placement": "auto"}, ("auto", "colocate", "colocate")),
        (PPO | {"placement": "auto", "critic__placement": "separate"}, ("auto", "separate", "colocate")),
        ({"placement": "auto", "engine__placement": "separate"}, ("separate", None, None)),
        (PPO | {"placement": "separate"}, ("separate", "separate", "separate")),
        (PPO | {"placement": "colocate"}, ("colocate", "colocate", "colocate")),
        (PPO | {"placement": "separate", "critic__placement": "colocate"}, ("separate", "colocate", "separate")),
        (PPO | {"placement": "colocate", "scorers__placement": "separate"}, ("colocate", "colocate", "separate")),
        (PPO | {"placement": "separate", "engine__placement": "colocate"}, ("colocate", "separate", "separate")),
        ({"placement": "separate"}, ("separate", None, None)),
        (PPO | {"placement": "separate", "lora__rank": 8}, ("separate", "separate", None)),
        ({"placement": "separate", "algo": "grop"}, ("separate", None, None)),
    ],
    ids=str,
)
def test_a_word_places_the_roles_that_a_run_has_and_a_roles_own_key_wins(
    flags: dict[str, object], expected: tuple[str, str | None, str | None]
) -> None:
    made = placed(config(**flags))
    assert places(made) == expected
    assert placed(made) == made


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, "separate"),
        ({"placement": "auto"}, "separate"),
        ({"placement": "separate"}, "separate"),
        ({"placement": "colocate"}, "colocate"),
        ({"reward__placement": "colocate"}, "colocate"),
        ({"placement": "colocate", "reward__placement": "separate"}, "separate"),
    ],
    ids=str,
)
def test_reward_models_have_gpus_of_their_own_unless_a_key_says_otherwise(
    flags: dict[str, object], expected: str
) -> None:
    requested = config(reward__models=SERVED, **flags)
    assert placed(requested).reward.placement == expected
    assert placed(config(**flags)).reward.placement == flags.get("reward__placement"), "a run without any"
    made = resolve_run(placed(requested), gpus(8))
    assert made.reward.placement == expected
    assert other_gpus(made) == (expected == "separate")
    assert resolve_run(made, gpus(8)) == made
    assert placed(requested, learns=False).reward.placement == expected
    evaluation = resolve_run(placed(requested, learns=False), gpus(8), learns=False)
    assert (evaluation.reward.placement, evaluation.engine.count) == ("separate", 7), "which has no ranks"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"reward__gpus": 0.5}, "reward.gpus has no effect without reward.placement separate"),
        ({"reward__nodes": "big"}, "reward.nodes has no effect without reward.placement separate"),
    ],
)
def test_keys_of_gpus_of_their_own_are_refused_beside_ranks(flags: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve_run(config(reward__models=SERVED, reward__placement="colocate", **flags), gpus(8))


def test_a_run_of_an_earlier_version_may_go_on_with_reward_models_beside_ranks() -> None:
    """Its configuration has the GPU of each, which was chosen for it."""
    earlier = config(reward__models=SERVED, reward__gpus=1, placement="colocate")
    assert other_gpus(fitted_run(earlier, gpus(8))) == 0


def test_a_run_without_room_for_reward_models_is_told_that_they_may_share_gpus() -> None:
    with pytest.raises(ConfigError, match=r"take 2 GPUs; 1 is visible: .* or set reward\.placement colocate$"):
        resolve_run(config(reward__models=SERVED), gpus(1))


def test_an_evaluation_of_a_run_whose_reward_models_shared_gpus_has_room_for_them() -> None:
    run = fitted_run(config(reward__models=SERVED, reward__placement="colocate"), gpus(4))
    assert run.engine.count == 4
    made = resolve_run(evaluation_config(run), gpus(4), learns=False)
    assert (made.engine.count, other_gpus(made)) == (3, 1)
    asked = evaluation_config(run, [Setting("engine.count", 2, "flag")])
    assert resolve_run(asked, gpus(4), learns=False).engine.count == 2
    elsewhere = [Setting("reward.models", [{"name": "far", "url": "http://x"}], "flag")]
    assert resolve_run(evaluation_config(run, elsewhere), gpus(4), learns=False).engine.count == 4


def test_a_run_says_which_reward_models_are_beside_its_ranks() -> None:
    both = SERVED[:-1] + ', {name = "far", url = "http://x"}]'
    made = resolve_run(config(reward__models=both, reward__placement="colocate"), gpus(2))
    said = explain(made, gpus(2))
    assert "Reward models score every finished episode: rm, far. On the GPUs of the learner: rm." in said


def test_a_place_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward.placement has no effect without a reward model that the run serves"):
        resolve_run(config(reward__placement="colocate"), gpus(8))


def test_an_evaluation_has_engines_only() -> None:
    assert places(placed(config(**PPO, placement="separate"), learns=False)) == ("separate", None, None)


def test_the_configuration_of_a_run_has_the_place_of_each_role() -> None:
    words = [{}, {"placement": "separate"}, {"placement": "colocate"}, {"placement": "auto"}]
    made = [fitted_run(config(**PPO, **word), gpus(8)) for word in words]
    assert [places(one) for one in made] == [
        ("colocate", "colocate", "colocate"),
        ("separate", "separate", "separate"),
        ("colocate", "colocate", "colocate"),
        ("colocate", "colocate", "colocate"),
    ]
    assert made[3] == made[0], "auto is the word that is meant where none is said"
    with_staleness = fitted_run(config(placement="auto", rollout__max_staleness=1), gpus(8))
    assert with_staleness.engine.placement == "separate", "auto asks the machine and the run"
    assert algorithm_of(made[1]).name == "ppo"
    assert fitted_run(made[1], gpus(8)) == made[1], "a resolved configuration comes back equal"
    assert places(fitted_run(config(**PPO, placement="separate"), LAPTOP)) == ("separate", "separate", "separate")


@pytest.mark.parametrize(
    ("machine", "flags", "words"),
    [
        (LAPTOP, {"placement": "colocate"}, "^placement colocate needs engines that can sleep"),
        (LAPTOP, {"engine__placement": "colocate"}, "^engine.placement colocate needs engines that can sleep"),
        (gpus(2), PPO | {"placement": "separate"}, "1 rank of placement separate and placement separate take 4 GPUs"),
        (
            gpus(2),
            PPO | {"placement": "separate", "scorers__placement": "colocate"},
            "with placement separate and 1 rank of placement separate take 3 GPUs",
        ),
        (
            gpus(4),
            {"placement": "separate", "algorithm__kl_coef": 0.1, "algorithm__reference_every": 2},
            "^placement separate does not work with algorithm.reference_every: .* or set scorers.placement colocate",
        ),
    ],
    ids=str,
)
def test_a_message_names_the_key_that_decided(machine: Machine, flags: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        algorithm_of(fitted_run(config(**flags), machine))

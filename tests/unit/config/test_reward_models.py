"""Reward models are set by a file, a flag or an argument; what cannot be asked is refused before the run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentrl.cluster.placement import Placement
from agentrl.config.loading import Setting, load, of_flags, resumed
from agentrl.config.resolve import explain, resolve_run
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.config.validate import other_gpus
from agentrl.errors import ConfigError
from agentrl.training.inputs import anchored
from tests.unit.config.test_resolve import FOUR_GPUS, LAPTOP

FILE = """
[[reward.models]]
name = "helpful"
model = "./rm"
weight = 0.5

[[reward.models]]
name = "steps"
url = "https://rm.example:5000"
scope = "turn"
token_env = "RM_TOKEN"
"""
FLAG = '[{name = "helpful", model = "./rm", weight = 0.5}]'


def one(**keys: object) -> Config:
    return load(None, [Setting("reward.models", [{"name": "rm", **keys}], "test")])


def test_a_file_names_several_models_and_config_prints_them_again(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(FILE)
    config = load(tmp_path / "run.toml")
    assert [(keys.name, keys.weight, keys.scope) for keys in config.reward.models] == [
        ("helpful", 0.5, "episode"), ("steps", 1.0, "turn"),
    ]  # fmt: skip
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load(tmp_path / "again.toml").reward == config.reward


def test_a_flag_names_models() -> None:
    [keys] = load(None, of_flags([("reward.models", FLAG)])).reward.models
    assert (keys.name, keys.model, keys.weight) == ("helpful", "./rm", 0.5)


REMOTE = {"name": "steps", "url": "https://rm.example:5000", "token_env": "RM_TOKEN", "weight": 0.5}
SERVED = {"name": "helpful", "model": "./rm"}


def with_models(path: Path, *models: dict[str, object]) -> Config:
    """The configuration of a resumed run that asked SERVED and REMOTE, with these models."""
    served = SERVED | {"model": str(path / "rm")}
    (path / "config.toml").write_text(to_toml(load(None, [Setting("reward.models", [served, REMOTE], "test")])))
    return resumed(path, [Setting("reward.models", list(models), "--reward.models")])


def test_a_resume_asks_the_same_reward_model_at_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = REMOTE | {"url": "http://10.0.0.7:6000", "token_env": "OTHER"}
    served, remote = with_models(tmp_path, SERVED, moved).reward.models
    assert remote.url == "http://10.0.0.7:6000"
    assert served.model == str(tmp_path / "rm"), "a relative path means a folder where resume was called"
    assert with_models(tmp_path, SERVED, {k: v for k, v in moved.items() if k != "token_env"}).reward.models[1].weight


@pytest.mark.parametrize(
    "models",
    [
        (SERVED, REMOTE | {"weight": 1.0}),
        (SERVED, REMOTE | {"name": "other"}),
        (SERVED, REMOTE | {"scope": "turn"}),
        (SERVED, REMOTE | {"judge": "qwen"}),
        (SERVED, REMOTE | {"url": "http://10.0.0.7:6000/get_reward"}),
        (SERVED | {"model": "./other"}, REMOTE),
        ({"name": "helpful", "url": "http://10.0.0.7:6000"}, REMOTE),
        (REMOTE,),
        (REMOTE, SERVED),
    ],
)
def test_a_resume_with_another_reward_model_is_refused(
    models: tuple[dict[str, object], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--reward\.models cannot change on resume, except for url and token_env\."):
        with_models(tmp_path, *models)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "reward.models 'rm' needs either a url or a model"),
        ({"url": "http://x", "model": "./rm"}, "needs either a url or a model"),
        ({"url": "x:5000"}, "has a url without http:// or https://"),
        ({"url": "http://x, y:5000"}, "has a url without http:// or https://"),
        ({"url": "http://x,"}, "has a url without http:// or https://"),
        ({"url": "http:// x"}, "has a url with white space or control characters"),
        ({"url": "http://x\ny"}, "has a url with white space or control characters"),
        ({"url": "http://x?key=1"}, "has a url with a query or fragment"),
        ({"url": "http://x#1"}, "has a url with a query or fragment"),
        ({"url": "http://:5000"}, "has a url without a valid host and port"),
        ({"url": "http:///x"}, "has a url without a valid host and port"),
        ({"url": "http://[::1"}, "has a url without a valid host and port"),
        ({"url": "http://x:99999"}, "has a url without a valid host and port"),
        ({"url": "http://x:0"}, "has a url without a valid host and port"),
        ({"url": "http://x:y"}, "has a url without a valid host and port"),
        ({"model": "./rm", "judge": "qwen"}, "has the name of a judge without a url: set judge to true to serve"),
        ({"url": "http://x", "judge": True}, "has judge true with a url: write the name of the model there"),
        ({"model": "./rm", "max_context": 9}, "has a max_context, which is for a judge that the run serves"),
        ({"model": "policy", "judge": True, "max_context": 9}, "has a max_context, which is for a judge that the run"),
        ({"url": "http://x", "prompt": "{conversation}"}, "has a prompt or pattern without a judge"),
        ({"url": "http://x", "bounds": [0, 1]}, "has bounds without a judge"),
        ({"url": "http://x", "max_tokens": 16}, "has max_tokens without a judge"),
        ({"model": "./rm", "token_env": "T"}, "has a token_env without a url"),
        ({"url": "http://x/get_reward", "scope": "turn"}, "which /get_reward does not serve"),
        ({"url": "http://x", "weight": float("nan")}, "must be a finite number"),
        ({"url": "http://x", "wieght": 1}, "wieght is no key there. Did you mean 'weight'?"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        one(**keys)


SECRET = "https://me:pass-phrase@rm.example:5000"
IN_URL = "has a user name or password in its url, which the run would store: leave them out, and set"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("reward.models", [{"name": "rm", "url": f"http://x,{SECRET}"}], f"'rm' {IN_URL} token_env"),
        ("roles", {"judge": {"url": SECRET, "model": "m"}}, f"judge {IN_URL} api_key_env"),
        ("env", [{"name": "guess", "roles": {"judge": {"url": SECRET, "model": "m"}}}], f"judge {IN_URL} api_key_env"),
        ("env", [{"name": f"openenv:{SECRET}"}], "has a user name or password in its URL, which the run would store"),
        ("env", [{"name": "agentrl://me:pass-phrase@host:8000/guess"}], "AGENTRL_ENV_TOKEN is the token of agentrl://"),
    ],
)
def test_urls_with_credentials_are_refused_and_not_shown(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as refusal:
        load(None, [Setting(key, value, "test")])
    assert "pass-phrase" not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://bob:pass-phrase/x@host:5000", "http://b:pass-phrase?@h", "b:pass-phrase#@h"])
def test_credentials_that_are_not_escaped_are_refused_and_not_shown(url: str) -> None:
    for key, value in (("reward.models", [{"name": "rm", "url": url}]), ("env", [{"name": f"openenv:http://{url}"}])):
        with pytest.raises(ConfigError, match="has a user name or password in its") as refusal:
            load(None, [Setting(key, value, "test")])
        assert "pass-phrase" not in str(refusal.value)


def test_a_url_of_openrlhf_may_end_in_a_slash_and_white_space() -> None:
    with pytest.raises(ConfigError, match="which /get_reward does not serve"):
        one(url="http://x/get_reward/ ", scope="turn")


def test_two_models_of_one_name_are_refused() -> None:
    twice = [{"name": "rm", "url": "http://x"}, {"name": "rm", "url": "http://y"}]
    with pytest.raises(ConfigError, match="names two models alike"):
        load(None, [Setting("reward.models", twice, "test")])


def test_served_models_take_gpus_of_their_own() -> None:
    config = Config.model_validate({"reward": {"models": [{"name": "rm", "model": "./rm"}]}, "engine": {"count": 3}})
    assert resolve_run(config, LAPTOP).reward.gpus == 0.0
    with pytest.raises(ConfigError, match=re.escape("take 5 GPUs; 4 are visible")):
        resolve_run(
            config.model_copy(update={"engine": config.engine.model_copy(update={"placement": "separate"})}), FOUR_GPUS
        )


@pytest.mark.parametrize(("gpus", "models", "taken"), [(0.6, 3, 3), (0.5, 3, 2), (0.1, 10, 1), (0.34, 3, 2), (2, 1, 2)])
def test_shares_of_a_gpu_are_packed_whole(gpus: float, models: int, taken: int) -> None:
    named = [{"name": f"rm{number}", "model": "./rm"} for number in range(models)]
    assert other_gpus(Config.model_validate({"reward": {"models": named, "gpus": gpus}})) == taken


def test_more_than_one_gpu_are_whole_ones() -> None:
    reward = {"models": [{"name": "rm", "model": "./rm"}], "gpus": 1.5}
    with pytest.raises(ConfigError, match=re.escape("reward.gpus 1.5: a process gets a share of one GPU, or whole")):
        resolve_run(Config.model_validate({"reward": reward}), FOUR_GPUS)


def test_the_plan_of_a_run_names_its_reward_models() -> None:
    config = resolve_run(one(url="http://x"), LAPTOP)
    assert "Reward models score every finished episode: rm." in explain(config, LAPTOP)


JUDGES = [
    {"name": "big", "model": "./big", "judge": True, "max_context": 4096},
    {"name": "self", "model": "policy", "judge": True},
    {"name": "rm", "model": "./rm"},
]


def test_a_judge_shares_the_engine_of_a_role_with_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    roles = {"user": {"model": "./big"}, "guide": {"model": "./small"}}
    config = Config.model_validate({"reward": {"models": JUDGES}, "roles": roles})
    assert config.role_models == {"./big": 4096, "./small": 1024}
    assert [keys.name for keys in config.reward.served] == ["rm"], "engines serve the judges"
    assert [keys.model for keys in anchored(config).reward.models] == [
        str(tmp_path / "big"), "policy", str(tmp_path / "rm"),
    ]  # fmt: skip
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load(tmp_path / "again.toml").reward == config.reward


def test_the_engine_of_a_judge_counts_as_that_of_a_role() -> None:
    """Four GPUs hold three engines and a rank, but no judge besides."""
    config = Config.model_validate({"reward": {"models": JUDGES[:2]}, "engine": {"count": 3, "placement": "separate"}})
    with pytest.raises(ConfigError, match=r"and 1 model for roles and judges take 5 GPUs; 4 are visible"):
        resolve_run(config, FOUR_GPUS)
    one_engine = Config.model_validate({"reward": {"models": JUDGES[:1]}})
    plan = explain(resolve_run(one_engine, LAPTOP), LAPTOP)
    assert "A vLLM process of its own serves ./big for roles and judges." in plan
    assert [name for name, _ in Placement(resolve_run(one_engine, LAPTOP))._bundles()].count(("role", 0)) == 1


def test_keys_of_models_that_are_not_there_are_refused() -> None:
    config = Config.model_validate({"reward": {"threads": 2}})
    with pytest.raises(ConfigError, match=r"reward\.threads has no effect without a reward model that the run serves"):
        resolve_run(config, LAPTOP)

"""A run's configuration: what is given arrives, what is unknown or wrong is refused with what, where and what to do."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pydantic import BaseModel

from agentrl.algorithms import AlgorithmConfig
from agentrl.config.keys import RENAMED, SHORT_FLAGS, keys, value_of
from agentrl.config.loading import load, of_arguments, of_flags, read, resumed
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.env import EnvConfig
from agentrl.errors import ConfigError
from tests.unit.planning.published import gpus


def refusal(toml: Path | None = None, *overrides: tuple[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        read(toml, of_flags(list(overrides)))
    return str(caught.value)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def test_nothing_given_is_the_default_config() -> None:
    assert load() == Config()


@pytest.mark.parametrize(("flag", "key"), SHORT_FLAGS.items())
def test_each_short_flag_sets_its_key(flag: str, key: str) -> None:
    text = "0.5" if flag == "lr" else "7"
    config = load(None, of_flags([(flag, text)]))
    assert str(value_of(config, key)) == text
    assert value_of(config, key) != value_of(Config(), key)


def test_flags_win_over_the_file_and_the_later_flag_over_the_earlier(toml: Path) -> None:
    toml.write_text("steps = 3\n[learner]\nlr = 1e-3\nzero_stage = 2\n")
    settings = read(toml, of_flags([("lr", "1e-4"), ("learner.lr", "1e-5")]))
    assert (settings.config.steps, settings.config.learner.lr, settings.config.learner.zero_stage) == (3, 1e-5, 2)
    assert settings.source("learner.lr") == "--learner.lr"
    assert settings.source("learner.zero_stage") == f"{toml}:4"
    assert settings.source("learner.beta1") == "default"


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("0.5", 0.5), ("true", True), ("[1, 2]", [1, 2]), ("a b", "a b"), ("2024-01-01", "2024-01-01")],
)
def test_env_keys_reach_the_env_with_their_types(text: str, value: object) -> None:
    assert load(None, of_flags([("env.level", text)])).env[0].options == {"level": value}


def test_dashes_in_key_names_are_underscores() -> None:
    assert load(None, of_flags([("rollout.group-size", "4")])).rollout.group_size == 4


def test_a_name_that_is_a_number_stays_text() -> None:
    assert load(None, of_flags([("model", "1e3")])).model.name == "1e3"


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("learner.lrr", "Did you mean 'learner.lr'?"),
        ("lrr", "Did you mean 'learner.lr'?"),
        ("group-sizes", "Did you mean 'rollout.group_size'?"),
        ("temperature", "Did you mean 'rollout.temperature' or 'eval.temperature'?"),
        ("rolout.prompts", "unknown section 'rolout' (--rolout.prompts). Did you mean 'rollout'?"),
        ("learner", "'learner' (--learner) is a section, not a key"),
        ("zzzzzz", "`agentrl config` lists every key"),
        ("rollout.prompts.x", "unknown section 'rollout.prompts'"),
        ("learner.use_liger_kernel", "(--learner.use_liger_kernel). agentrl has no Liger kernels"),
        ("ring_attn_size", "no ring attention: set learner.sequence_parallel for long sequences."),
    ],
)
def test_an_unknown_flag_is_refused_with_the_nearest_key(name: str, suggestion: str) -> None:
    message = refusal(None, (name, "1"))
    assert suggestion in message
    assert f"(--{name})" in message


def test_an_unknown_key_of_a_file_is_refused_with_its_line(toml: Path) -> None:
    toml.write_text("[rollout]\nprompts = 4\n\n[learner]\nprompts = 3\nlrr = 1\n")
    message = refusal(toml)
    assert f"unknown key 'learner.lrr' ({toml}:6)" in message
    assert f"unknown key 'learner.prompts' ({toml}:5). Did you mean 'rollout.prompts'?" in message


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("lr", "-1", "learner.lr must be greater than or equal to 0, got -1 (--lr). Meaning: peak learning rate"),
        ("lr", "inf", "learner.lr must be a finite number, got inf (--lr)"),
        ("steps", "many", "steps must be an integer"),
        ("learner.zero_stage", "7", "learner.zero_stage must be 0, 1, 2 or 3, got 7"),
        ("track.wandb", "maybe", "track.wandb must be a boolean"),
        ("rollout.temperature", "0", "rollout.temperature must be greater than or equal to 0.01"),
        ("rollout.temperature", "100", "rollout.temperature must be less than or equal to 10"),
        ("lr", "1e5", "learner.lr must be less than or equal to 1, got 100000.0 (--lr). Meaning: peak"),
        ("steps", "0", "steps must be greater than or equal to 1, got 0 (--steps)"),
        ("seed", "4294967296", "seed must be less than 4294967296"),
        ("learner.weight-decay", "5", "learner.weight_decay must be less than or equal to 1"),
        ("max-tokens", "1.000", "rollout.max_tokens must be a whole number, without a point, got 1.0 (--max-tokens)"),
        ("steps", "true", "steps must be a whole number, got True (--steps)"),
        ("env.name.x", "1", "env.name must be a string"),
        ("env", "", "env.name must not be empty, got '' (--env). Meaning: environment: a name, owner/name"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_place_and_meaning(name: str, text: str, words: str) -> None:
    assert words in refusal(None, (name, text))


def test_all_wrong_values_are_told_at_once() -> None:
    assert len(refusal(None, ("lr", "-1"), ("steps", "x"), ("seed", "-3")).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps = \n", "is not valid TOML: Invalid value (at line 1"),
        ("learner = 3\n", "is a section, not a key"),
        ("steps = 2024-01-01\n", "steps must be an integer"),
        ("[env]\nname = ['math', 'guess']\n", "env.name must be a string"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(toml: Path, text: str, words: str) -> None:
    toml.write_text(text)
    message = refusal(toml)
    assert words in message
    assert str(toml) in message


def test_a_file_may_begin_with_a_byte_order_mark(toml: Path) -> None:
    toml.write_text("steps = 3\n", encoding="utf-8-sig")
    assert load(toml, of_arguments({})).steps == 3


def test_a_path_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"out must be a path, got 3 \(argument out\)"):
        load(None, of_arguments({"out": 3}))


def test_two_values_for_one_key_are_refused() -> None:
    words = r"learner.lr is set twice \(argument lr, argument learner\['lr'\]\): leave one out"
    with pytest.raises(ConfigError, match=words):
        of_arguments({"lr": 1e-5, "learner": {"lr": 2e-5}})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "cannot read the configuration file" in refusal(tmp_path / "none.toml")


def test_env_keys_that_contradict_each_other_are_refused() -> None:
    assert "so it has no keys inside" in refusal(None, ("env.a", "1"), ("env.a.b", "2"))


def test_the_toml_of_a_config_gives_the_config_again(toml: Path) -> None:
    flags = [("env.level", "2"), ("env.data", 'odd "name".jsonl'), ("env.a.b", "3"), ("out", "x/y"), ("lr", "1e-6")]
    settings = read(None, of_flags(flags))
    toml.write_text(to_toml(settings.config, settings))
    assert load(toml) == settings.config


def test_every_key_has_a_meaning() -> None:
    assert [key for key, info in keys().items() if not info.description] == []


def test_a_resume_changes_what_a_run_does_not_learn_from_and_refuses_the_rest(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(to_toml(load(None, of_flags([("lr", "1e-6"), ("steps", "4")]))))
    longer = resumed(tmp_path, of_flags([("steps", "8"), ("engine.count", "2"), ("learner.step-timeout-s", "60")]))
    assert (longer.steps, longer.engine.count, longer.learner.step_timeout_s) == (8, 2, 60)
    assert longer.learner.lr == 1e-6
    layout = [("learner.ranks", "3"), ("learner.threads", "1"), ("learner.zero_stage", "2"), ("critic.zero_stage", "1")]
    assert resumed(tmp_path, of_flags(layout)).learner.ranks == 3
    with pytest.raises(ConfigError, match=r"--lr, --env cannot change on resume\. Start a new run: .*--out OTHER"):
        resumed(tmp_path, of_flags([("lr", "1e-5"), ("steps", "9"), ("env", "guess")]))
    assert resumed(tmp_path, of_flags([("learner.nodes", "gpu"), ("rollout.nodes", "cpu")])).learner.nodes == "gpu"
    with pytest.raises(ConfigError, match=r"--env\.nodes, --env\.own_timeout_s cannot change on resume"):
        resumed(tmp_path, of_flags([("env.nodes", "9"), ("env.own_timeout_s", "1")]))
    with pytest.raises(ConfigError, match="steps"):
        resumed(tmp_path, of_flags([("step", "9")]))


def test_a_resume_may_place_engines_elsewhere(tmp_path: Path) -> None:
    """The way of the weights follows from their placement, and is in the configuration of every run."""
    machine = gpus(4)
    first = resolve_run(load(None, of_flags([("env", "guess"), ("engine.placement", "colocate")])), machine)
    (tmp_path / "config.toml").write_text(to_toml(first))
    flags = [("engine.placement", "separate"), ("engine.count", "2"), ("learner.ranks", "2")]
    again = resolve_run(resumed(tmp_path, of_flags(flags)), machine)
    assert (first.weights.transfer, again.weights.transfer) == ("ipc", "nccl")
    with pytest.raises(ConfigError, match=r"--weights\.transfer cannot change on resume"):
        resumed(tmp_path, of_flags([("weights.transfer", "nccl")]))


class Service(BaseModel):
    url: str
    body: dict[str, object] | None = None


class Searching(EnvConfig):
    service: Service | None = None
    spare: Service = Service(url="http://spare")
    ratio: float = float("inf")


TABLE = {
    "url": "http://127.0.0.1/find",
    "body": {"queries": ["{query}"], "topk": 3, "exact": True, "day": date(2026, 1, 2)},
}
AS_FLAG = '{url = "http://127.0.0.1/find", body = {queries = ["{query}"], topk = 3, exact = true, day = 2026-01-02}}'
AS_SECTION = AS_FLAG.strip("{}").replace("url =", "[env.service]\nurl =").replace(", body", "\nbody")


@pytest.mark.parametrize("way", ["flag", "key", "section"])
def test_a_table_of_the_env_is_written_as_it_was_given(way: str, toml: Path, tmp_path: Path) -> None:
    toml.write_text({"flag": "", "key": f"[env]\nservice = {AS_FLAG}\n", "section": AS_SECTION + "}"}[way])
    settings = read(toml, of_flags([("env.service", AS_FLAG)] if way == "flag" else []))
    assert settings.config.env[0].options == {"service": TABLE}
    env = Searching.model_validate(settings.config.env[0].options)
    (tmp_path / "printed.toml").write_text(to_toml(settings.config, settings, {"env": [env]}))
    assert load(tmp_path / "printed.toml").env[0].options == {"service": TABLE}
    assert '# spare = {url = "http://spare"}' in (tmp_path / "printed.toml").read_text()
    (tmp_path / "config.toml").write_text(to_toml(settings.config))
    assert resumed(tmp_path, of_flags([("steps", "7")])).env[0].options == {"service": TABLE}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_key_of_an_earlier_version_is_refused_with_its_present_name(old: str, new: str) -> None:
    assert new in keys() or new.removeprefix("algorithm.") in AlgorithmConfig.model_fields
    assert refusal(None, (old, "1")) == f"{old} (--{old}) is now called {new}."
    bare = old.rpartition(".")[2]
    assert refusal(None, (bare, "1")) == f"{bare} (--{bare}) is now called {new}."


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"roles.judge.url": "localhost:1"}, r"^roles\.judge\.model is required \(--roles\.judge\.url\)"),
        (
            {"roles.judge.url": "localhost:1", "roles.judge.model": "m"},
            r"^roles\.judge has a url without .* \(--roles\.judge\.url, --roles\.judge\.model\)",
        ),
        (
            {"roles.judge.model": "m", "roles.judge.retries": "-1"},
            r"^roles\.judge\.retries .* \(--roles\.judge\.retries\)",
        ),
    ],
)
def test_an_error_of_a_role_names_the_flags_of_that_role(flags: dict[str, str], message: str) -> None:
    others = {"roles.aide.model": "a", **flags, "roles.customer.model": "c"}
    with pytest.raises(ConfigError, match=message):
        load(None, of_flags(others.items()))

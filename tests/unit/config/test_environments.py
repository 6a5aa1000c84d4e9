"""One environment or several, as a table, as tables or as a text with weights: the same configuration in each form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentrl.config.environments import listed
from agentrl.config.loading import load, of_arguments, of_flags, read
from agentrl.config.schema import Config, EnvSection
from agentrl.config.toml import to_toml
from agentrl.env import EnvConfig
from agentrl.errors import ConfigError

TABLES = """
[[env]]
name = "math"
weight = 2

[[env]]
name = "guess"
alias = "easy"
high = 9
rollout = {max_turns = 3, max_tokens = 8}
"""


def refusal(*flags: tuple[str, str], base: Path | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        read(base, of_flags(flags))
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("math", [("math", None)]),
        ("math:2", [("math:2", None)]),
        ("math:2,guess:1", [("math", 2.0), ("guess", 1.0)]),
        ("math, owner/name@1.2:0.5", [("math", None), ("owner/name@1.2", 0.5)]),
        ("./a.py:Mine:2,package:Class", [("./a.py:Mine", 2.0), ("package:Class", None)]),
        ("rg:leg_counting:3,gym:CartPole-v1", [("rg:leg_counting", 3.0), ("gym:CartPole-v1", None)]),
        ("openenv:http://127.0.0.1:8000,math:2", [("openenv:http://127.0.0.1:8000", None), ("math", 2.0)]),
        ("x:http://host:80:2,y:http://[::1]:80", [("x:http://host:80", 2.0), ("y:http://[::1]:80", None)]),
        ("x:http://host/path:2,math", [("x:http://host/path", 2.0), ("math", None)]),
        ("ada/maze==0.1,ada/maze==0.2:3", [("ada/maze==0.1", None), ("ada/maze==0.2", 3.0)]),
        ("math>=1,<2", [("math>=1,<2", None)]),
        ("math>=1, <2:3,guess~=0.1,!=0.1.4", [("math>=1, <2", 3.0), ("guess~=0.1,!=0.1.4", None)]),
    ],
)
def test_a_number_after_the_last_colon_is_a_weight_unless_it_is_a_port(
    text: str, names: list[tuple[str, float | None]]
) -> None:
    assert listed(text) == names


def test_a_number_that_may_be_a_port_is_refused_with_both_ways_to_write_it() -> None:
    words = refusal(("env", "openenv:localhost:8000,math"))
    assert "'env'" not in words
    assert "weights are at most 1000: if it belongs to the name, add a weight, as in openenv:localhost:8000:1" in words


@pytest.mark.parametrize("second", ["0.2", "@0.2", "2"])
def test_a_version_without_its_name_is_refused_with_both_ways_to_write_it(second: str) -> None:
    words = refusal(("env", f"math==0.1,{second}"))
    assert f"has an environment {second!r}, which is the beginning of a version" in words
    assert "as in math==0.1,math==0.2, and a range with operators, as in math>=1,<2" in words


def test_keys_of_two_versions_need_tables() -> None:
    words = refusal(("env", "maze==0.1,maze==0.2"), ("env.high", "9"))
    assert "so that high is nobody's key: write [[env]] tables" in words
    assert "write env.math.high, or [[env]] tables" in refusal(("env", "maze==0.1,math"), ("env.high", "9"))


def test_a_path_with_a_comma_is_one_environment(tmp_path: Path) -> None:
    file = tmp_path / "a,b.py"
    file.touch()
    assert listed(str(file)) == [(str(file), None)]
    assert listed(f"{file}:Mine") == [(f"{file}:Mine", None)]


def test_files_that_exist_are_listed_with_others(tmp_path: Path) -> None:
    one, other = tmp_path / "a.py", tmp_path / "b,c.py"
    one.touch()
    other.touch()
    assert listed(f"{one}:2,math") == [(str(one), 2.0), ("math", None)]
    assert listed(f"{one}:A,math:2") == [(f"{one}:A", None), ("math", 2.0)]
    assert listed(f"{one}:A:2,math") == [(f"{one}:A", 2.0), ("math", None)]
    assert listed(f"{one}:math,guess") == [(f"{one}:math", None), ("guess", None)]
    assert listed(f"{other}:A") == [(f"{other}:A", None)]


def test_keys_of_several_environments_are_under_their_names() -> None:
    flags = [("env", "math:2,guess"), ("env.guess.high", "9"), ("env.guess.rollout.max_turns", "3")]
    config = load(None, of_flags(flags))
    assert [(env.name, env.weight, env.options) for env in config.env] == [("math", 2, {}), ("guess", 1, {"high": 9})]
    assert [config.rollout_of(env).max_turns for env in config.env] == [0, 3]
    assert "so that high is nobody's key: write env.math.high or env.guess.high, or [[env]] tables" in refusal(
        ("env", "math,guess"), ("env.high", "9")
    )
    near = refusal(("env", "math,guess"), ("env.gues.high", "9"))
    assert "has no environment 'gues'. Did you mean 'guess'?" in near


@pytest.mark.parametrize("weight", ["nan", "-1", "inf", "-0.5"])
def test_a_number_that_is_no_weight_is_refused(weight: str) -> None:
    words = refusal(("env", f"math:{weight},guess"))
    assert f"has an environment math:{weight}, whose end is no weight: weights are numbers above 0" in words


def test_a_table_without_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TABLES.replace('name = "guess"\n', ""))
    assert "env has a table without a name: give table 2 of 2 a key name" in refusal(base=tmp_path / "run.toml")


def test_tables_and_flags_give_the_same_configuration(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TABLES)
    config = load(tmp_path / "run.toml")
    assert [env.label for env in config.env] == ["math", "easy"]
    flags = [("env", "math:2,guess"), ("env.guess.high", "9"), ("env.guess.alias", "easy")]
    flags += [("env.guess.rollout.max_turns", "3"), ("env.guess.rollout.max_tokens", "8")]
    assert load(None, of_flags(flags)) == config
    tables = [{"name": "math", "weight": 2.0}, {"name": "guess", "alias": "easy", "high": 9}]
    tables[1]["rollout"] = {"max_turns": 3, "max_tokens": 8}
    assert load(None, of_arguments({"env": tables})) == config


def test_several_environments_are_written_as_tables_and_read_back_equal(tmp_path: Path) -> None:
    settings = read(None, of_flags([("env", "math:2,guess"), ("env.guess.high", "9"), ("env.guess.alias", "easy")]))
    for text in (to_toml(settings.config), to_toml(settings.config, settings)):
        (tmp_path / "run.toml").write_text(text)
        assert load(tmp_path / "run.toml") == settings.config
        assert text.count("[[env]]") == 2
    assert load(settings.config) == settings.config


def test_the_printed_tables_say_where_each_key_comes_from() -> None:
    class Own(EnvConfig):
        high: int = 20
        turns: int = 4

    settings = read(None, of_flags([("env", "math:2,guess"), ("env.guess.high", "9")]))
    text = to_toml(settings.config, settings, {"env": [EnvConfig(), Own(high=9)]})
    for line in (r'name = "math" +# \[--env\]', r"weight = 2.0 +# \[--env\]", r"weight = 1.0 +# \[default\]"):
        assert re.search(line, text)
    assert re.search(r"^high = 9 +# \[--env\]", text, re.MULTILINE)
    assert re.search(r"^# turns = 4 +# \[default\]", text, re.MULTILINE)


def test_one_environment_is_written_as_one_table() -> None:
    assert "[env]" in to_toml(Config(env=(EnvSection(name="guess"),)))


def test_a_flag_replaces_the_tables_of_a_file_and_changes_none_of_them(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(TABLES)
    assert [env.name for env in load(file, of_flags([("env", "search")])).env] == ["search"]
    assert "the run has [[env]] tables" in refusal(("env.high", "3"), base=file)
    file.write_text('[env]\nname = "guess"\nhigh = 9\n')
    assert [env.options for env in load(file, of_arguments({"env": [{"name": "math"}]})).env] == [{}]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([("env", "guess,guess")], "env names two environments 'guess': write [[env]] tables, and give one of them"),
        ([("env", "math,guess"), ("env.guess.rollout.max_turn", "3")], "env.rollout.max_turn is no key there. Did you"),
        (
            [("env", "./ok.py,guess"), ("env.ok.high", "5")],
            "env has no environment 'ok'. Known: ./ok.py, guess. Where a",
        ),
        ([("env", "guess,math"), ("env.gues.high", "5")], "env has no environment 'gues'. Did you mean 'guess'?"),
        ([("env", "guess,math"), ("env.high", "5")], "so that high is nobody's key: write env.guess.high or env.math"),
        ([("env", "guess,math"), ("env.math", "5")], "env has a value where the keys of 'math' should be"),
        ([("env", "guess"), ("roles.judge.mdel", "x")], "roles.judge.mdel is no key there. Did you mean 'model'?"),
        ([("env", "guess"), ("roles.judge.mdel", "x")], "roles.judge.model is required (--roles.judge.mdel)"),
        ([("env", "math,guess"), ("env.math.weight", "0")], "env.weight must be greater than 0"),
    ],
)
def test_what_cannot_be_told_apart_or_is_unknown_is_refused(flags: list[tuple[str, str]], words: str) -> None:
    assert words in refusal(*flags)


def test_the_line_of_a_wrong_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TABLES.replace("weight = 2", "weight = -2"))
    assert "env.weight must be greater than 0, got -2" in refusal(base=tmp_path / "run.toml")
    assert "run.toml:2" in refusal(base=tmp_path / "run.toml")

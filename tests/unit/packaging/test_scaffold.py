"""A new environment package works as it was written, and has the form of those that ship."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agentrl_sandbox import UnavailableError, choose

from agentrl.cli.main import main
from agentrl.config.embedded import EMBEDDED
from agentrl.config.schema import Config
from agentrl.env import make_env, play, resolve
from agentrl.errors import ConfigError, DataError
from agentrl.packaging.scaffold import TEMPLATES, PackageName, write_package
from agentrl.training.inputs import RunInputs
from tests.unit.house.source import author_sources, sources
from tests.unit.test_architecture import RULES
from tests.unit.test_words import nouns, phrases

PATIENCE_S = 150
EXPECTED = re.compile("pyproject|imports openai")  # the rules know the projects of this repository only


def written(template: str, folder: Path) -> Path:
    """The package of a template; skips the test if it needs a sandbox and this machine has none."""
    if template == "sandbox":
        try:
            choose()
        except UnavailableError as error:
            pytest.skip(str(error))
    write_package(PackageName("", f"new-{template}"), template, folder)
    return folder


@pytest.mark.timeout(PATIENCE_S + 10)
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_tests_of_a_new_package_pass(template: str, tmp_path: Path) -> None:
    folder = written(template, tmp_path / "new")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_training_accepts_a_new_package_and_has_nothing_to_note(template: str, tmp_path: Path) -> None:
    folder = written(template, tmp_path / "new")
    env = {"name": str(folder)}
    inputs = RunInputs.of(Config.model_validate({"env": env, "model": {"name": EMBEDDED}}))
    kind = resolve(str(folder))
    assert kind.__name__ == PackageName("", f"new-{template}").env_class
    assert inputs.notice == kind().preflight()


def test_an_answer_of_signs_is_not_earned_by_others(tmp_path: Path) -> None:
    folder, data = tmp_path / "signs", tmp_path / "signs.jsonl"
    write_package(PackageName("ada", "signs"), "dataset", folder)
    data.write_text('{"question": "Which sign adds?", "answer": "+"}\n')
    env = make_env(str(folder), data=str(data), heldout_share=1e-9)
    episodes = play(env, ["+"], ["The sign is +"], [""], ["-"])
    assert [episode.reward for episode in episodes] == [1.0, 1.0, 0.0, 0.0]
    data.write_text('{"question": "Which sign adds?", "answer": " "}\n')
    with pytest.raises(DataError, match="write a row"):
        list(make_env(str(folder), data=str(data)).tasks("train"))  # type: ignore[arg-type]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_package_keeps_the_rules_of_this_house(template: str, tmp_path: Path) -> None:
    write_package(PackageName("ada", template), template, tmp_path / "envs" / template)
    found = sources(tmp_path)
    assert len(found) == 2
    assert [fault for rule in RULES for fault in rule(found) if not EXPECTED.search(fault)] == []
    assert {i.module for each in author_sources(tmp_path) for i in each.imports if i.module.startswith("agentrl.")} <= {
        "agentrl.env", "agentrl.env.testing", "agentrl.errors", "agentrl.types",
    }  # fmt: skip
    assert list(map(str, phrases(tmp_path))) == []
    assert [nouns(path.read_text()) for path in tmp_path.rglob("agentrl_*/*.py")] == [[], []]


def test_a_name_without_an_owner_gives_the_names_of_those_that_ship() -> None:
    name = PackageName.parse("word-games")
    names = (name.announced, name.distribution, name.module, name.env_class)
    assert names == ("word-games", "agentrl-env-word-games", "agentrl_word_games", "WordGamesEnv")


def test_an_owner_is_in_every_name_that_must_be_unique() -> None:
    name = PackageName.parse("ada/math")
    names = (name.announced, name.distribution, name.module, name.env_class)
    assert names == ("ada/math", "agentrl-env-ada-math", "agentrl_ada_math", "MathEnv")


@pytest.mark.parametrize("text", ["Sums", "a_b", "1a", "a--b", "a-", "", "/a", "a/", "a/b/c", "a-b/c", "./a"])
def test_a_name_that_no_package_can_have_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of an environment"):
        PackageName.parse(text)


@pytest.mark.parametrize("name", ["guess", "sandbox", "tools"])
def test_a_module_that_is_installed_is_not_written_again(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"agentrl_{name} is installed: choose another name, or OWNER/{name}"):
        write_package(PackageName("", name), "single", tmp_path / "new")


@pytest.mark.parametrize("name", ["agentrl", "torch", "ray", "vllm", "gymnasium", "re2"])
def test_a_folder_that_would_hide_what_agentrl_imports_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"agentrl imports {name}, and would find this folder instead"):
        write_package(PackageName("ada", name), "single", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_with_anything_in_it_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sums").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["env", "init", "ada/sums"]) == 0
    assert "agentrl train --env ./sums" in capsys.readouterr().out
    before = sorted(tmp_path.rglob("*"))
    assert main(["env", "init", "ada/sums", "--template", "tools"]) == 2
    assert "sums exists: choose another name, or remove it" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.timeout(PATIENCE_S + 10)
def test_an_installed_wheel_announces_the_owners_name_and_carries_its_data(tmp_path: Path) -> None:
    write_package(PackageName("ada", "facts"), "dataset", tmp_path / "facts")
    pip = [sys.executable, "-m", "pip", "-qq", "install", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(tmp_path / "facts")], check=True, timeout=PATIENCE_S)
    code = "import sys; from agentrl.cli.main import main; sys.exit(main())"
    paths = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH", ""))))
    answer = subprocess.run(
        [sys.executable, "-c", code, "env", "show", "ada/facts"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("ada/facts (agentrl-env-ada-facts 0.1.0)\nAnswer questions from a file.\n")
    assert "What is the capital of" in answer.stdout

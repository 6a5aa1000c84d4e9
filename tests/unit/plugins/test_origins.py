"""A process has one module of each name: the second package with it is refused, instead of being the first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.packaging.scaffold import PackageName, write_package

GUESS = Path(__file__).parents[3] / "envs" / "guess"
LOAD = """
import sys
from agentrl.env import resolve
from agentrl.errors import ConfigError
for name in sys.argv[1:]:
    try:
        print(sys.modules[resolve(name).__module__].__file__)
    except ConfigError as error:
        print(error)
"""


def loaded(*names: Path | str) -> list[str]:
    """Load environments one after the other in a new process. Returns the file of each, or why it is refused."""
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    command = [sys.executable, "-P", "-c", LOAD, *map(str, names)]
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_same_module_in_two_folders_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        write_package(PackageName("", "sums"), "single", folder)
    file, refusal, again = loaded(first, second, first)
    assert file == again == str(first / "agentrl_sums" / "env.py")
    assert f"{second} cannot be loaded: this process has the module agentrl_sums of {first}" in refusal
    assert "env.python" in refusal


def test_a_folder_beside_the_installed_package_with_its_module_is_refused(tmp_path: Path) -> None:
    copy = shutil.copytree(GUESS, tmp_path / "guess")
    for names in (("guess", copy), (copy, "guess"), ("agentrl_guess:GuessEnv", copy), (copy, "agentrl_guess:GuessEnv")):
        file, refusal = loaded(*names)
        assert file.endswith("agentrl_guess/env.py")
        assert "cannot be loaded: this process has the module agentrl_guess of " in refusal
    assert len(set(loaded("guess", GUESS, "agentrl_guess:GuessEnv", "guess"))) == 1


def test_a_folder_is_not_taken_for_the_installed_package_of_its_module(tmp_path: Path) -> None:
    copy = shutil.copytree(GUESS, tmp_path / "guess")
    (copy / "src").mkdir()
    (copy / "agentrl_guess").rename(copy / "src" / "agentrl_guess")
    assert loaded(copy) == [str(copy / "src" / "agentrl_guess" / "env.py")]


@pytest.mark.parametrize("target", ["agentrl_guess:GuessEnv", "agentrl_guess.env:GuessEnv"])
def test_a_folder_may_announce_a_class_of_another_distribution(target: str, tmp_path: Path) -> None:
    table = f'[project]\nname = "other"\n[project.entry-points."agentrl.envs"]\nother = "{target}"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    assert loaded(tmp_path, "guess") == [str(GUESS / "agentrl_guess" / "env.py")] * 2


def test_a_folder_inside_another_with_its_module_is_refused(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "examples" / "inner"
    for folder in (outer, inner):
        write_package(PackageName("", "sums"), "single", folder)
    for names in ((inner, outer), (outer, inner)):
        _, refusal = loaded(*names)
        assert f"{names[1]} cannot be loaded: this process has the module agentrl_sums of" in refusal


def test_other_classes_of_the_same_module_are_refused_with_the_cause(tmp_path: Path) -> None:
    for name in ("One", "Two"):
        folder = tmp_path / name / "agentrl_named"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"from tests.unit.env.worlds import Echo\nclass {name}(Echo): pass\n")
        table = f'[project]\nname = "x"\n[project.entry-points."agentrl.envs"]\nx = "agentrl_named:{name}"\n'
        (tmp_path / name / "pyproject.toml").write_text(table)
    assert "this process has the module agentrl_named of" in loaded(tmp_path / "One", tmp_path / "Two")[1]


def test_a_module_beside_the_announced_one_is_not_taken_for_the_installed(tmp_path: Path) -> None:
    shutil.copytree(GUESS / "agentrl_guess", tmp_path / "agentrl_guess")
    (tmp_path / "agentrl_other.py").write_text("from tests.unit.env.worlds import Echo\nclass Other(Echo): pass\n")
    table = '[project]\nname = "x"\n[project.entry-points."agentrl.envs"]\nx = "agentrl_other:Other"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    assert "'guess' of agentrl-env-guess" in loaded(tmp_path, "guess")[1]


def test_links_and_folders_that_python_searches_already_are_no_clash(tmp_path: Path) -> None:
    real, linked = tmp_path / "real", tmp_path / "linked"
    write_package(PackageName("", "sums"), "single", real)
    linked.mkdir()
    (linked / "agentrl_sums").symlink_to(real / "agentrl_sums")
    shutil.copy(real / "pyproject.toml", linked)
    assert len(loaded(linked)) == len(set(loaded(real, linked))) == 1

"""One resolver for every kind of name, and errors that say what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Self

import gymnasium
import pytest
from pydantic import Field, model_validator

from agentrl.env import Env, EnvConfig, env_config, make_env, play, resolve
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.plugins import registry
from agentrl.plugins.files import absolute
from tests.unit.env.worlds import Echo

FILE = """
from agentrl.env import Env, Task, reward

class Mine(Env):
    def tasks(self, split):
        return [Task("one")]

    def setup(self, task, ctx):
        return [{"role": "user", "content": "hi"}]

    @reward
    def polite(self, ctx):
        return 1.0
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def test_announced_names_resolve() -> None:
    assert resolve("guess").__name__ == "GuessEnv"
    assert resolve("guess@0.1").__name__ == "GuessEnv"
    assert resolve("agentrl/guess@0.1.0") is resolve("guess")
    assert gymnasium.spec("agentrl/guess-v0").kwargs == {"name": "guess"}


def test_unknown_names_get_the_nearest_one_and_what_to_install() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'guess'.*pip install agentrl-env-gues "):
        resolve("gues")
    with pytest.raises(UnknownNameError, match="pip install agentrl-env-acme-maze"):
        resolve("acme/maze")
    with pytest.raises(UnknownNameError):
        resolve("acme/guess")


def test_a_version_that_is_not_installed_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"agentrl-env-guess 0\.1\.0 is installed; pip install 'agentrl-env-guess==9\.1"
    ):
        resolve("guess@9.1")


def test_two_packages_with_the_same_name_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [registry.EntryPoint("maze", target, ENVIRONMENTS.group) for target in ("a:Maze", "b:Maze")]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    monkeypatch.setattr(registry, "announced", registry.announced.__wrapped__)
    with pytest.raises(ConfigError, match=r"both announce environment 'maze'; uninstall one.*OWNER/maze"):
        resolve("maze")


@pytest.mark.parametrize(("other", "is_refused"), [("agentrl-env-rival", True), ("agentrl_env_Maze", False)])
def test_two_distributions_of_one_class_are_rejected_too(
    other: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("agentrl-env-maze", other)):
        info = tmp_path / str(number) / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[agentrl.envs]\nmaze = json:JSONDecoder\n")
    found = [item for n in "01" for one in distributions(path=[str(tmp_path / n)]) for item in one.entry_points]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    monkeypatch.setattr(registry, "announced", registry.announced.__wrapped__)
    with pytest.raises(ConfigError, match="both announce" if is_refused else "is not an agentrl"):
        resolve("maze")


@pytest.mark.parametrize(
    ("name", "specifiers"),
    [
        ("alice/math@0.2", "==0.2.*"),
        ("alice/math@0.2.0rc1", "==0.2.0rc1"),
        ("alice/math@0.2.dev3", "==0.2.dev3"),
        ("alice/math@0.2+cpu", "==0.2+cpu"),
        ("alice/math", ""),
    ],
)
def test_a_version_with_a_suffix_means_itself(name: str, specifiers: str) -> None:
    assert registry.split_version(name) == ("alice/math", specifiers)
    assert str(registry.specifiers("it", specifiers)) == specifiers


@pytest.mark.parametrize("name", ["guess==0.1.0", "guess~=0.1", "agentrl/guess>=0.1,<1", "guess@0", "guess!=0.2"])
def test_a_version_that_meets_a_specifier_resolves(name: str) -> None:
    assert resolve(name) is resolve("guess")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("guess==0.2", "agentrl-env-guess 0.1.0 is installed; pip install 'agentrl-env-guess==0.2', give it"),
        ("guess>=1", "pip install 'agentrl-env-guess>=1'"),
        ("guess@latest", "write a version as @1.2, ==1.2.3 or ~=1.2"),
        ("guess=1", "write a version as @1.2, ==1.2.3 or ~=1.2"),
    ],
)
def test_a_version_that_does_not_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(name)


def test_a_package_that_does_not_import_is_named() -> None:
    for target, message in (
        ("no_such_module:Maze", r"\(no_such_module:Maze\) cannot be loaded: ModuleNotFoundError"),
        ("json:dumps", "is no"),
    ):
        entry = registry.EntryPoint("maze", target, ENVIRONMENTS.group)
        with pytest.raises(ConfigError, match=message):
            registry.load(ENVIRONMENTS, registry.Announced("maze", target, "acme-maze", "1.0", entry))


def test_a_file_and_a_folder_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine.py", FILE)
    write(tmp_path, "folder/env.py", FILE)
    write(tmp_path, "other/agent_func.py", FILE)
    monkeypatch.chdir(tmp_path)
    for name in ("./mine.py", "mine.py", str(tmp_path / "mine.py"), "./folder", "./other"):
        assert resolve(name).__name__ == "Mine"
    assert resolve("./mine.py") is resolve(str(tmp_path / "mine.py"))
    assert resolve("./mine.py") is not resolve("./folder")
    [episode] = play(resolve("./mine.py")(), ["hello"])
    assert episode.messages[0] == {"role": "user", "content": "hi"}


def test_an_environment_package_resolves_from_its_source_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        "pyproject.toml",
        '[project]\nname = "x"\n[project.entry-points."agentrl.envs"]\nx = "src_env_x:Mine"\n',
    )
    write(tmp_path, "src_env_x/__init__.py", FILE)
    assert resolve(f"{tmp_path}").__name__ == "Mine"


def test_a_folder_that_announces_one_class_twice_has_one_class(tmp_path: Path) -> None:
    points = '[project.entry-points."agentrl.envs"]\n'
    write(tmp_path, "twice_env_x/__init__.py", FILE)
    write(tmp_path, "pyproject.toml", points + 'x = "twice_env_x:Mine"\ny = "twice_env_x:Mine"\n')
    assert resolve(f"{tmp_path}").__name__ == "Mine"
    write(tmp_path, "pyproject.toml", points + 'x = "twice_env_x:Mine"\ny = "other:Mine"\n')
    with pytest.raises(ConfigError, match="announces twice_env_x:Mine, other:Mine: give each class a name of its own"):
        resolve(f"{tmp_path}:Mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import agentrl\n\n1 / 0\n", r"bad\.py:3: ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", r"bad\.py:2: SyntaxError"),
        ("import no_such_thing\n", r"bad\.py:1: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit(3)\n", r"bad\.py:1"),
        ("x = 1\n", r"must define an agentrl\.env\.Env subclass.*found: none"),
        (FILE + FILE.replace("Mine", "Other"), r"defines Mine, Other: name one of them, as in .*bad\.py:Mine"),
        (
            "class Bare:\n    def tasks(self, split): ...\n    def setup(self, task, ctx): ...\n",
            r"found: Bare, which does not derive from agentrl\.env\.Env",
        ),
        ("from agentrl.env import Env\nclass Half(Env): ...\n", r"found: Half lacks setup and tasks"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(write(tmp_path, "bad.py", text))


def test_a_file_name_may_be_followed_by_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "two.py", FILE + FILE.replace("Mine", "Other"))
    write(tmp_path, "folder/env.py", FILE + FILE.replace("Mine", "Other"))
    monkeypatch.chdir(tmp_path)
    for name in ("two.py:Other", "./two.py:Other", str(tmp_path / "two.py:Other"), "./folder:Other"):
        assert resolve(name).__name__ == "Other"
    with pytest.raises(UnknownNameError, match=r"two\.py 'Othr'\. Did you mean 'Other'\?"):
        resolve("two.py:Othr")
    assert absolute("two.py:Other") == str(tmp_path / "two.py:Other")
    assert absolute("./folder") == str(tmp_path / "folder")
    assert absolute("guess") == "guess"
    for address in ("agentrl://127.0.0.1:80/guess", "openenv:http://127.0.0.1:80", "agentrl://h:80/a/b@1.2"):
        assert absolute(address) == address


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import beside", r"bad\.py:1: ModuleNotFoundError.*is beside the file.*pyproject\.toml"),
        ("from . import beside", r"bad\.py:1: ImportError: .*relative import.*make its folder a package"),
        ("import no_such_thing", r"bad\.py:1: ModuleNotFoundError.*Install what it needs"),
    ],
)
def test_a_file_that_imports_its_neighbours_gets_the_remedy(tmp_path: Path, line: str, message: str) -> None:
    write(tmp_path, "beside.py", "")
    with pytest.raises(ConfigError, match=message):
        resolve(write(tmp_path, "bad.py", line))


def test_missing_and_empty_paths_say_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve(str(tmp_path / "none.py"))
    with pytest.raises(ConfigError, match=r"neither env\.py nor agent_func\.py"):
        resolve(str(tmp_path))


class Maze(Echo):
    class Config(EnvConfig):
        width: int = Field(3, ge=2)
        walls: bool = True
        doors: tuple[int, ...] = ()
        names: list[str] = Field(default_factory=list)


def test_env_keys_are_checked_and_converted() -> None:
    config = env_config(Maze, {"width": "5", "walls": "false"})
    assert (config.width, config.walls) == (5, False)  # type: ignore[attr-defined]
    assert env_config(Maze, {}) == Maze.Config()


def test_a_comma_separated_string_is_a_list() -> None:
    config = env_config(Maze, {"doors": "1, 2", "names": "a"})
    assert (config.doors, config.names) == ((1, 2), ["a"])  # type: ignore[attr-defined]
    assert env_config(Maze, {"doors": [3]}).doors == (3,)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"env\.doors\.1 must be a valid integer, .*got 'x'"):
        env_config(Maze, {"doors": "1,x"})


def test_bad_env_keys_are_explained() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown key of Maze 'env\.widht'\. Did you mean 'env\.width'\?"):
        env_config(Maze, {"widht": 4})
    with pytest.raises(UnknownNameError, match=r"unknown key of Maze 'env\.lo'\. Known:"):
        env_config(Maze, {"lo": 4})
    with pytest.raises(ConfigError, match=r"Maze: env\.width must be greater than or equal to 2, got 1$"):
        env_config(Maze, {"width": 1})


class Wants(EnvConfig):
    data: str
    high: int = 4

    @model_validator(mode="after")
    def fits(self) -> Self:
        if self.high > 9:
            raise ValueError("high goes to 9")
        return self


class Wanting(Echo):
    Config = Wants


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Wanting: env.data is required: give --env.data VALUE"),
        ({"data": "x", "high": "ten"}, "env.high must be a valid integer, .*, got 'ten'"),
        ({"data": "x", "high": 5.0}, "env.high must be a whole number, without a point, got 5.0"),
        ({"data": "x", "high": 10}, "Wanting: high goes to 9"),
        ({"data": "x", "steps": 3}, "unknown key .*'env.steps'.* A file has steps above its first section."),
        ({"data": "x", "wieght": 3}, "unknown key of Wanting 'env.wieght'. Did you mean 'env.weight'? .*"),
        ({"data": "x", "wanting": {"high": 3}}, "unknown key .* have no name before them: write env.high."),
    ],
)
def test_errors_of_keys_read_like_those_of_a_run(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(message)}$".replace(r"\.\*", ".*")):
        env_config(Wanting, options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:Env", r"mine\.py: Env is abstract: define setup and tasks\. Known: Guess\.$"),
        ("{}::Guess", r"write one colon before the class, as in .*mine\.py:Guess$"),
        ("{}:", r"write \S*mine\.py, or \S*mine\.py:Class$"),
    ],
)
def test_a_misnamed_class_gets_the_remedy(name: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from agentrl.env import Env\nclass Guess(Env):\n def tasks(self, split): return []\n")
    file.write_text(file.read_text() + " def setup(self, task, ctx): return []\n")
    with pytest.raises(ConfigError, match=message):
        resolve(name.format(file))


@pytest.mark.parametrize("name", ["math:x", "math:2", "math:1e3", "guess:2", "guess:x", "guess:", "guess:Guess"])
def test_a_weight_that_is_none_is_no_part_of_an_environment(name: str) -> None:
    own, _, rest = name.partition(":")
    with pytest.raises(ConfigError, match=f"unknown environment '{name}': {own} is an environment, and '{rest}' no w"):
        resolve(name)


def test_make_env_takes_its_keys_by_name() -> None:
    env = make_env("guess", high=30)
    assert isinstance(env, Env)
    assert env.config.high == 30
    for wrong, words in ((type(env), "the class Guess.*: call it instead"), (None, "None"), (env, "<.*Guess")):
        with pytest.raises(ConfigError, match=f"make_env takes the name of an environment, .*, not {words}"):
            make_env(wrong)


def test_importing_agentrl_env_is_light() -> None:
    program = "import agentrl.env, sys; print(*{'torch','ray','vllm','deepspeed','transformers'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout.strip() == ""


MISNAMED = """
import sys
from importlib import metadata
from agentrl.plugins import registry
names = ("my maze", "maze@1", "maze,guess", "Maze", "maze:v1", "good-maze")
entries = metadata.EntryPoints(metadata.EntryPoint(name, "json:dumps", "agentrl.envs") for name in names)
registry.entry_points = lambda group: entries if group == "agentrl.envs" else metadata.EntryPoints()
import gymnasium, agentrl.env
print(*(env_id for env_id in gymnasium.registry if env_id.startswith("agentrl/")))
from agentrl.cli.main import main
main(["env", "list"])
main(["env", "show", "my maze"])
"""


def test_a_name_that_no_environment_may_have_is_skipped_and_mentioned() -> None:
    ended = subprocess.run([sys.executable, "-c", MISNAMED], capture_output=True, text=True, timeout=50, check=False)
    assert ended.stdout.splitlines()[0] == "agentrl/good-maze-v0", ended.stderr
    said = "json:dumps announces 'my maze', which is skipped: write NAME or OWNER/NAME with lower-case letters"
    assert said in ended.stdout
    assert said in ended.stderr
    assert "unknown environment 'my maze'. Known: good-maze." in ended.stderr

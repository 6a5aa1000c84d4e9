"""A lock names everything that can differ between two machines, and a run that requires it is refused for any of it."""

from __future__ import annotations

import re
import resource
import shlex
from pathlib import Path

import pytest

from agentrl.cli.main import main
from agentrl.config.embedded import EMBEDDED
from agentrl.config.loading import load
from agentrl.config.schema import Config, EnvSection
from agentrl.errors import ConfigError
from agentrl.packaging.lock import Locked, check_lock, write_lock
from agentrl.packaging.scaffold import PackageName, write_package
from agentrl.records.manifest import PluginSource
from agentrl.training.eval_config import is_read
from agentrl.training.inputs import RunInputs, anchored

pytestmark = pytest.mark.timeout(300)  # the first lock of a process reads every installed package
ENVIRONMENT = """
from agentrl.env import Env

class Tiny(Env):
    def tasks(self, split): return []
    def setup(self, task, ctx): return []
"""
WITH_ROWS = f"""
from agentrl.env import EnvConfig
{ENVIRONMENT}
    class Config(EnvConfig):
        rows: str = ""
"""


def envs(*names: str, **options: object) -> list[EnvSection]:
    return [EnvSection.model_validate({"name": name, **options}) for name in names]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lock") / "my.lock"
    write_lock(path, envs("guess"))
    return path.read_text()


@pytest.fixture
def lock(tmp_path: Path, written: str) -> Path:
    (tmp_path / "my.lock").write_text(written)
    return tmp_path / "my.lock"


def edited(lock: Path, pattern: str, new: str) -> None:
    """Replace the first match of a pattern in a lock: what another machine would have written."""
    text, count = re.subn(pattern, new, lock.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1
    lock.write_text(text)


def test_the_machine_that_wrote_a_lock_meets_it(lock: Path) -> None:
    check_lock(lock, envs("guess"))
    check_lock(lock, envs("guess@0.1"))


@pytest.mark.parametrize(
    ("pattern", "new", "difference"),
    [
        (r'^python = ".*"', 'python = "3.11.0"', "python 3.11.0 → "),
        (r'^numpy = ".*"', 'numpy = "1.0"', "numpy 1.0 → "),
        (r'^numpy = ".*"', 'nonesuch = "1.0"', "nonesuch 1.0 → absent; numpy absent → "),
        (r'(source\](?:\n.*){2})\nversion = ".*"', r'\1\nversion = "9.0"', "guess: version 9.0 → 0.1.0"),
        (r'(installed\]\]\n.*)\nversion = ".*"', r'\1\nversion = "9.0"', "distribution agentrl-env-guess: 9.0 → 0.1.0"),
        (r'^name = "env.py"(\nbytes.*)\nsha256 = ".*"', r'name = "env.py"\1\nsha256 = "00"', "guess: source: env.py"),
        (r'^name = "guess"', 'name = "math"', "guess is not in it"),
    ],
)
def test_a_difference_is_named(lock: Path, pattern: str, new: str, difference: str) -> None:
    edited(lock, pattern, new)
    if "source: " in difference:
        edited(lock, r'(source\](?:\n.*){3})\nsha256 = ".*"$', r'\1\nsha256 = "11"')
    with pytest.raises(ConfigError) as refused:
        check_lock(lock, envs("guess"))
    assert difference in str(refused.value)
    names = "math guess" if 'name = "math"' in new else "guess"
    assert f"write a new one with `agentrl env lock {names} --out {lock}`" in str(refused.value)


def test_training_evaluation_and_a_resume_require_it(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config.model_validate({"env": [{"name": "guess"}], "model": {"name": EMBEDDED}, "env_lock": "my.lock"})
    assert RunInputs.of(config).notice == ""
    assert anchored(config).env_lock == lock
    edited(lock, r'^numpy = ".*"', 'numpy = "1.0"')
    for command in ("train", "eval"):
        # Without the lock's refusal the run ends at the model, which does not exist: it never begins.
        words = ["--model", "./nonesuch", "--env", "guess"] if command == "train" else ["./nonesuch", "--env", "guess"]
        assert main([command, *words, "--env-lock", "my.lock"]) == 2
        assert "this machine differs from my.lock: numpy 1.0 → " in capsys.readouterr().err
    assert is_read("env_lock")
    assert not (tmp_path / "runs").exists()


def test_the_data_of_a_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_package(PackageName("ada", "locked"), "dataset", tmp_path / "locked")
    write_lock(tmp_path / "my.lock", envs("./locked"))
    check_lock(tmp_path / "my.lock", envs(str(tmp_path / "locked")))
    data = tmp_path / "locked" / "agentrl_ada_locked" / "questions.jsonl"
    data.write_text(data.read_text() + "\n")
    with pytest.raises(ConfigError, match=r"\./locked: source: questions\.jsonl\."):
        check_lock(tmp_path / "my.lock", envs("./locked"))


def test_the_files_that_keys_name_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, lock, world = tmp_path / "rows.jsonl", tmp_path / "my.lock", str(tmp_path / "world.py")
    Path(world).write_text(WITH_ROWS)
    rows.write_text("1")
    assert main(["env", "lock", world, "--env.rows", str(rows), "--out", str(lock)]) == 0
    check_lock(lock, envs(world, rows=[str(rows)], high=9))
    with pytest.raises(ConfigError, match=r"world\.py: env\.rows: rows\.jsonl \(gone\)\. Install"):
        check_lock(lock, envs(world))
    check_lock(lock, envs(world, rows=str(rows), more={"prompt": "Solve it. " * 40 + "a/b", "bytes": "\0"}))
    for more in (str(rows), [str(rows)], {"file": str(rows)}, [{"files": [str(rows)]}]):
        with pytest.raises(ConfigError, match=r"world\.py: env\.more: rows\.jsonl \(new\)\. Install"):
            check_lock(lock, envs(world, rows=str(rows), more=more))
    rows.write_text("2")
    with pytest.raises(ConfigError, match=r"world\.py: env\.rows: rows\.jsonl\. Install"):
        check_lock(lock, envs(world, rows=str(rows)))
    assert main(["env", "lock", "--env.rows", str(rows)]) == 2
    assert "--env.KEY needs the name of its environment" in capsys.readouterr().err


def test_the_command_for_a_new_lock_has_the_options_of_the_environment(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my rows").touch()
    options = {"rows": [str(tmp_path / "my rows")], "high": 9}
    locked = Locked(PluginSource("tiny", "", "", ""), ())
    monkeypatch.setattr("agentrl.packaging.lock._locked", lambda *_: locked)
    with pytest.raises(ConfigError) as refused:
        check_lock(lock, envs("tiny", python="/opt/python", **options))
    _, command, _ = str(refused.value).split("`")
    keys = ["--env.python", "/opt/python", "--env.rows", f'["{tmp_path / "my rows"}"]']
    assert shlex.split(command) == ["agentrl", "env", "lock", "tiny", *keys, "--out", str(lock)]
    several = (*envs("tiny", **options), *envs("math", python="/opt/python"))
    with pytest.raises(ConfigError, match="`agentrl env lock --config CONFIG --out"):
        check_lock(lock, several)


def test_the_environments_of_a_configuration_are_locked_with_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "world.py").write_text(WITH_ROWS)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(name)
    config, lock = tmp_path / "run.toml", tmp_path / "my.lock"
    tables = [f'[[env]]\nname = "{tmp_path}/world.py"\nalias = "{x}"\nrows = "{tmp_path}/{x}.jsonl"\n' for x in "ab"]
    config.write_text("\n".join([*tables, '[[env]]\nname = "guess"\nhigh = 20\n']))
    assert main(["env", "lock", "--config", str(config), "--out", str(lock)]) == 0
    assert "3 environments" in capsys.readouterr().out
    check_lock(lock, load(config).env)
    (tmp_path / "b.jsonl").write_text("c")
    with pytest.raises(ConfigError, match=r"env\.rows: b\.jsonl\. .* `agentrl env lock --config CONFIG --out"):
        check_lock(lock, load(config).env)
    for words in (["guess"], ["--env.high", "20"]):
        assert main(["env", "lock", *words, "--config", str(config)]) == 2
        assert "run.toml names the environments and their keys" in capsys.readouterr().err


def test_a_key_that_does_not_exist_and_a_file_that_does_not_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "world.py").write_text(WITH_ROWS)
    (tmp_path / "rows.jsonl").write_text("1")
    for key, value, says in (
        ("rosw", "rows.jsonl", "'env.rosw'. Did you mean 'env.rows'?"),
        ("rows", "none.jsonl", "none.jsonl is no file: a lock contains the files that keys name"),
    ):
        words = [str(tmp_path / "world.py"), f"--env.{key}", str(tmp_path / value), "--out", str(tmp_path / "my.lock")]
        assert main(["env", "lock", *words]) == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "my.lock").exists()


def test_the_files_that_a_wheel_installed_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "tiny_world-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-world\nVersion: 1.0\n")
    (info / "RECORD").write_text("tiny_world.py,,\ntiny_rows.txt,,\ntiny_world-1.0.dist-info/RECORD,,\n")
    (tmp_path / "site" / "tiny_world.py").write_text(ENVIRONMENT)
    (tmp_path / "site" / "tiny_rows.txt").write_text("1")
    monkeypatch.syspath_prepend(tmp_path / "site")
    [locked] = write_lock(tmp_path / "my.lock", envs("tiny_world:Tiny")).environments
    assert locked.source.distribution == "tiny-world"
    check_lock(tmp_path / "my.lock", envs("tiny_world:Tiny"))
    (tmp_path / "site" / "tiny_rows.txt").write_text("2")
    with pytest.raises(ConfigError, match=r"my\.lock: tiny_world:Tiny: distribution tiny-world: its files\. Install"):
        check_lock(tmp_path / "my.lock", envs("tiny_world:Tiny"))
    (tmp_path / "site" / "tiny_world.py").write_text(f"{ENVIRONMENT}# changed")
    with pytest.raises(ConfigError, match=r"my\.lock: tiny_world:Tiny: source: tiny_world\.py\. Install"):
        check_lock(tmp_path / "my.lock", envs("tiny_world:Tiny"))


def test_the_files_of_the_packages_beside_it_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info, library = tmp_path / "site" / "Tiny_Library-1.0.dist-info", tmp_path / "site" / "tiny_library.py"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Tiny_Library\nVersion: 1.0\n")
    (info / "RECORD").write_text("tiny_library.py,,\nlost.py,,\nTiny_Library-1.0.dist-info/RECORD,,\n")
    library.write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    lock, world = tmp_path / "my.lock", tmp_path / "world.py"
    world.write_text(f"{ENVIRONMENT}    wraps = ('tiny-library',)\n")
    write_lock(lock, envs(str(world)))
    check_lock(lock, envs(str(world)))
    library.write_text("x = 2\n")
    with pytest.raises(ConfigError, match=r"world\.py: wrapped tiny-library: its files\. Install"):
        check_lock(lock, envs(str(world)))
    with pytest.raises(ConfigError, match=r"my\.lock: guess is not in it; tiny-library: its files\. Install"):
        check_lock(lock, envs("guess"))
    library.unlink()
    with pytest.raises(ConfigError, match=r"my\.lock: \S+world\.py: wrapped tiny-library: its files\. Install"):
        check_lock(lock, envs(str(world)))


def test_a_lock_that_ends_before_its_hashes_is_refused(lock: Path) -> None:
    text, count = re.subn(r"^\[hashes\]\n([^\[].*\n)+", "", lock.read_text(), flags=re.MULTILINE)
    assert (count, len(text) < len(lock.read_text())) == (1, True)
    for cut in (text, f"{text}\n[hashes]\n"):
        lock.write_text(cut)
        with pytest.raises(ConfigError, match=r"my\.lock ends before its hashes: write it again with `agentrl env"):
            check_lock(lock, envs("guess"))


def test_a_lock_that_cannot_be_written_leaves_the_one_before(lock: Path) -> None:
    before = lock.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*my\.lock: File too large"):
            write_lock(lock, envs("guess"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert lock.read_bytes() == before
    assert [path.name for path in lock.parent.iterdir() if path.name.startswith("my.lock")] == ["my.lock"]


def test_the_command_locks_every_installed_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "lock", "--out", str(tmp_path / "all.lock")]) == 0
    assert re.search(r"wrote .*all\.lock: 5 environments, \d+ packages", capsys.readouterr().out)
    check_lock(tmp_path / "all.lock", envs("code", "functions", "guess", "math", "search"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the lock"),
        ("x = ", "is no lock: .*; write one with `agentrl env lock --out"),
        ("python = 3", "is no lock: Expected `str`, got `int` - at `\\$.python`"),
    ],
)
def test_a_file_that_is_no_lock_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "my.lock").write_text(text)
    with pytest.raises(ConfigError, match=message):
        check_lock(tmp_path / "my.lock", envs("guess"))

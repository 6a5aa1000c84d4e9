"""`agentrl env add`: a version of an environment in an interpreter of its own, whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

from agentrl.cli.main import main
from agentrl.config.embedded import EMBEDDED
from agentrl.config.loading import load, of_flags
from agentrl.config.locking import locked
from agentrl.config.schema import Config
from agentrl.env import resolve
from agentrl.errors import ConfigError, DeadlineError, UnknownNameError
from agentrl.hosting.environments import environment
from agentrl.packaging import adding, clashes, lock
from agentrl.packaging.added import Added, Record, added, interpreter_of, with_interpreters
from agentrl.packaging.adding import Request, add, remove
from agentrl.packaging.core_wheel import pack_core
from agentrl.packaging.inspection import Inspected, Offer
from agentrl.packaging.lock import check_lock, write_lock
from agentrl.plugins import registry
from agentrl.plugins.source import copy_source
from agentrl.records.manifest import PluginSource
from agentrl.training.inputs import RunInputs
from tests.unit.hosting.stages import Stage
from tests.unit.packaging.wheels import write_base, write_maze, write_wheel

pytestmark = pytest.mark.timeout(600)
OWN = "import sys\nfrom pathlib import Path\nPath({file!r}).open('a').write(sys.prefix + '\\n')\n"
"""Code of a module that writes down the interpreter that imports it."""
WAITING = """
import os
def _wait(*args, **keywords):
    open({entered!r}, "w").close()
    open({gate!r}).read()
    raise SystemExit("the gate is open")
build_wheel = prepare_metadata_for_build_wheel = _wait
"""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what agentrl-core needs."""
    folder = tmp_path_factory.mktemp("links")
    write_base(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AGENTRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "envs"


@pytest.fixture
def announced_anew() -> Iterator[None]:
    """What is announced is read again, before and after the test."""
    registry.announced.cache_clear()
    yield
    registry.announced.cache_clear()


def request_of(text: str | Path, links: Path, *more: str) -> Request:
    return Request(str(text), pip=("--no-index", "--find-links", str(links), *more))


def left(home: Path) -> list[str]:
    """What the folder of added environments holds besides its lock."""
    return [path.name for path in home.iterdir() if path.name != "lock"]


def write_added(home: Path, distribution: str, version: str, *names: str, scheme: str = "") -> Added:
    """Write the record of an added environment, without its interpreter."""
    offers = [Offer(name, False, distribution, version) for name in names]
    offers += [Offer(scheme, True, distribution, "0.3.1")] if scheme else []
    folder = home / f"{distribution}-{version}"
    folder.mkdir(parents=True)
    record = Record(distribution, version, "", tuple(offers), "3.11.7", ())
    (folder / "added.json").write_bytes(msgspec.json.encode(record))
    return Added(folder, record)


# --- a real installation ------------------------------------------------------------------------------------------


def test_two_versions_are_added_shown_locked_and_removed(
    links: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"
    for version in ("0.1", "0.2"):
        write_maze(links, version, OWN.format(file=str(seen)))
    index = ["--no-index", "--find-links", str(links)]
    assert main(["env", "add", "ada/maze==0.1", *index]) == 0
    assert "added agentrl-env-ada-maze 0.1: --env ada/maze\n" in capsys.readouterr().out
    assert main(["env", "add", str(links / "agentrl_env_ada_maze-0.2-py3-none-any.whl"), *index]) == 0
    old, new = added()
    assert set(seen.read_text().split()) == {str(item.folder / "venv") for item in (old, new)}
    assert {item.name for item in old.record.downloads} > {"agentrl-core", "numpy", "pydantic-core"}
    assert all(len(item.sha256) == 64 for item in old.record.downloads)

    config = load(None, of_flags([("env", "ada/maze==0.1,ada/maze==0.2:3,guess")]))
    assert [env.python for env in with_interpreters(config).env] == [old.python, new.python, None]

    pair = with_interpreters(load(None, of_flags([("env", "ada/maze==0.1,ada/maze==0.2"), ("model", EMBEDDED)])))
    assert [source().version for source in RunInputs.of(pair).envs] == ["0.1", "0.2"]
    assert asyncio.run(rewards(pair)) == [0.1, 0.2]

    assert main(["config", "--env", "ada/maze==0.1"]) == 0
    assert f'# python = "{old.python}" # [chosen for this machine]' in capsys.readouterr().out

    assert main(["env", "list"]) == 0
    out = capsys.readouterr().out
    assert f"interpreter: {new.python} (3.11" in out
    assert out.count("agentrl-env-ada-maze  (added)") == 2
    assert main(["env", "show", "ada/maze==0.1"]) == 0
    assert f"interpreter: {old.python}\n" in capsys.readouterr().out

    write_lock(tmp_path / "my.lock")
    check_lock(tmp_path / "my.lock", with_interpreters(config).env)
    text = (tmp_path / "my.lock").read_text()
    assert "ada/maze==0.1" in text
    module = next((old.folder / "venv").rglob("agentrl_ada_maze.py"))
    module.write_text(module.read_text() + "\n")
    with pytest.raises(ConfigError, match=r"ada/maze==0\.1: source: agentrl_ada_maze\.py"):
        check_lock(tmp_path / "my.lock", with_interpreters(config).env)

    with pytest.raises(ConfigError, match=r"is added already, in .*: agentrl env remove agentrl-env-ada-maze==0.1"):
        add(request_of("ada/maze==0.1", links))
    with pytest.raises(ConfigError, match=r"ada/maze is added as agentrl-env-ada-maze==0.1, agentrl-env-ada-maze==0.2"):
        remove("ada/maze")
    for path, cwd in (
        (str(old.python), home),
        (f"{old.folder.name}/venv/bin/python", home),
        ("./python", old.python.parent),
    ):
        waiting = [path, "-c", "print(flush=True); input()"]
        with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd) as running:
            assert running.stdout
            running.stdout.readline()
            with pytest.raises(ConfigError, match=f"process {running.pid} runs in .*: end it first"):
                remove("ada/maze==0.1")
            assert running.stdin
            running.stdin.close()
    with chdir(old.python.parent):  # where programs without a folder seem to be
        assert main(["env", "remove", "ada/maze==0.1"]) == 0
    assert [item.record.version for item in added()] == ["0.2"]
    assert left(home) == [new.folder.name]


def test_two_owners_are_added_beside_each_other_and_played(links: Path, home: Path) -> None:
    for owner, version in (("ada", "0.5"), ("bob", "0.7")):
        write_maze(links, version, owner=owner)
        add(request_of(f"{owner}/maze=={version}", links))
    assert len(left(home)) == 2
    pair = with_interpreters(load(None, of_flags([("env", "ada/maze,bob/maze"), ("model", EMBEDDED)])))
    sources = [source() for source in RunInputs.of(pair).envs]
    assert [(source.distribution, source.version) for source in sources] == [
        ("agentrl-env-ada-maze", "0.5"),
        ("agentrl-env-bob-maze", "0.7"),
    ]
    assert asyncio.run(rewards(pair)) == [0.5, 0.7]


async def rewards(config: Config) -> list[float]:
    """The reward of an episode of each environment, played with a scripted engine."""
    found = []
    for env in config.env:
        stage = await Stage.of(environment(env.name, env.options, env.python), ())
        found.append((await stage.run()).reward)
        await stage.close()
    return found


@pytest.mark.parametrize(
    ("files", "points", "message"),
    [
        ({"plain.py": ""}, "", "announces nothing in the entry-point groups agentrl.envs and agentrl.adapters"),
        ({"broken.py": "import nonesuch"}, "[agentrl.envs]\nbroken = broken:Broken\n", "No module named 'nonesuch'"),
    ],
)
def test_a_package_without_a_usable_environment_leaves_nothing(
    files: dict[str, str], points: str, message: str, links: Path, home: Path, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, "agentrl-env-broken", "1.0", files, points)
    with pytest.raises(ConfigError, match=message):
        add(request_of(wheel, links))
    assert left(home) == []


def test_the_wheel_of_agentrl_holds_its_code_with_its_hashes(tmp_path: Path) -> None:
    with ZipFile(pack_core(tmp_path)) as wheel:
        names = set(wheel.namelist())
        [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = [line.split(",") for line in wheel.read(record).decode().splitlines()]
        assert {row[0] for row in rows} == names
        code = wheel.read("agentrl/errors.py")
        digest = urlsafe_b64encode(hashlib.sha256(code).digest()).decode().rstrip("=")
        assert ["agentrl/errors.py", f"sha256={digest}", str(len(code))] in rows
    assert names > {"agentrl_sandbox/__init__.py", "agentrl_tools/__init__.py", "agentrl/py.typed"}
    assert not [name for name in names if "__pycache__" in name]


# --- what fails before or while pip runs --------------------------------------------------------------------------


def test_what_pip_does_not_find_says_what_to_do_without_network(links: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)ada/none==3 cannot be installed.*--no-index --find-links FOLDER"):
        add(request_of("ada/none==3", links))
    assert left(home) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "./nowhere does not exist"),
        (__file__, f"{__file__} is a file, .* A run takes the file as it is: agentrl train --env {__file__}"),
        ("nowhere-1.0-py3-none-any.whl", "does not exist"),
        ("~nobody.whl", "does not exist"),
        ("Ada/Maze", "cannot be the name of an environment: write NAME or OWNER/NAME"),
        ("agentrl-env-x --index-url=http://127.0.0.1", "names no package"),
        ("agentrl-env-../x", "names no package"),
        ("maze==", "names no package"),
        ("agentrl-env-x@ file:///tmp/x", "names no package: write a name, with a version such as ==1.2, or a path"),
        (
            "agentrl-env-x; python_version > '3'",
            "names no package: write a name, with a version such as ==1.2, or a path",
        ),
    ],
)
def test_a_name_that_no_package_can_have_is_refused(name: str, message: str, home: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        add(Request(name))
    assert not home.exists()


def test_a_folder_of_somebody_else_is_never_removed(home: Path, links: Path) -> None:
    (home / "mine").mkdir(parents=True)
    with pytest.raises(UnknownNameError):
        remove("mine")
    assert left(home) == ["mine"]


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AGENTRL_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set AGENTRL_HOME to another folder"):
        add(Request("ada/maze"))
    (tmp_path / "envs" / "lock").mkdir(parents=True)
    monkeypatch.setenv("AGENTRL_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot write \S+/envs: Is a directory; set AGENTRL_HOME"):
        add(Request("ada/maze"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "No such file or directory"), ("garbage", "Exec format error"), ("#!/bin/false", "code 1")],
)
def test_an_interpreter_that_is_none_is_refused(text: str | None, reason: str, home: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if text:
        python.write_text(text)
        python.chmod(0o755)
    with pytest.raises(ConfigError, match=rf"(?s){python} makes no virtual environment; .*--python .*{reason}"):
        add(Request("ada/maze", python=str(python)))
    assert left(home) == []


def test_an_equal_version_is_added_already(home: Path) -> None:
    write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    with pytest.raises(ConfigError, match=r"agentrl-env-ada-maze==0\.1 is added already"):
        add(Request("ada/maze==0.1.0"))


def test_a_folder_that_is_no_package_is_refused_before_it_is_copied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(adding, "copy_source", lambda *_: pytest.fail("it was copied"))
    with pytest.raises(ConfigError, match=r"notes has no usable pyproject\.toml: .*\(docs/share-an-env\.md\)"):
        add(Request(str(tmp_path / "notes")))
    assert left(home) == []


def test_a_copy_of_a_folder_contains_no_copy_of_itself(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "maze.py").touch()
    (tmp_path / "again").symlink_to(tmp_path)
    copy = copy_source(tmp_path, tmp_path / "tmp" / "copy")
    assert [path.name for path in copy.rglob("*")] == ["maze.py"]


def test_two_at_once_take_turns_until_a_deadline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "LOCK_S", 0.0)
    home.mkdir(parents=True)
    with locked(home / "lock", 0.0), pytest.raises(DeadlineError, match=r"another process has held .*lock"):
        add(Request("ada/maze"))


@pytest.fixture
def stuck(tmp_path: Path, home: Path, links: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`agentrl env add` of a package whose build waits."""
    (tmp_path / "tmp").mkdir()
    entered, gate, source = tmp_path / "entered", tmp_path / "gate", tmp_path / "stuck"
    os.mkfifo(entered)
    os.mkfifo(gate)
    source.mkdir()
    (source / "backend.py").write_text(WAITING.format(entered=str(entered), gate=str(gate)))
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "agentrl-env-stuck"\nversion = "1.0"\n'
    )
    words = ["env", "add", str(source), "--no-index", "--find-links", str(links)]
    variables = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen([sys.executable, "-m", "agentrl", *words], env=variables) as process:
        entered.open().close()
        yield process
        process.kill()
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody waits any more
            return


def assert_nothing_waits(gate: Path) -> None:
    with pytest.raises(OSError, match="No such device"):
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)


def test_an_interrupted_installation_leaves_nothing(stuck: subprocess.Popen[bytes], home: Path, tmp_path: Path) -> None:
    assert len(left(home)) == 1
    stuck.send_signal(signal.SIGTERM)
    assert stuck.wait(60) == 128 + signal.SIGTERM
    assert left(home) == []
    assert_nothing_waits(tmp_path / "gate")


def test_a_killed_one_is_no_environment_and_the_next_command_removes_it(
    stuck: subprocess.Popen[bytes], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck.kill()
    stuck.wait(60)
    assert len(left(home)) == 1
    assert added() == []
    monkeypatch.setattr(adding, "LOCK_S", 60.0)
    with pytest.raises(UnknownNameError, match="unknown added environment 'stuck'"):
        remove("stuck")  # once its pip has ended, which holds the lock
    assert left(home) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert_nothing_waits(tmp_path / "gate")


def test_one_that_pip_installed_is_named_with_the_command_that_removes_it(home: Path) -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown added environment 'guess'.* pip uninstall agentrl-env-guess\.$"
    ):
        remove("guess")


@pytest.mark.parametrize("name", ["ada/maze", "agentrl-env-ada-maze==0.1"])
def test_the_next_command_ends_an_interrupted_removal(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    item = write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    (item.folder / "venv").mkdir()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adding.shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove(name)
    assert added() == []
    with pytest.raises(UnknownNameError):
        remove(name)
    assert left(home) == []


# --- which interpreter a name means ------------------------------------------------------------------------------


def test_a_name_means_the_newest_added_version_that_fits(home: Path) -> None:
    write_added(home, "agentrl-env-ada-maze", "0.9", "ada/maze")
    new = write_added(home, "agentrl-env-ada-maze", "0.10", "ada/maze")
    assert interpreter_of("ada/maze") == new.python
    assert interpreter_of("ada/maze>=0.9,<0.11") == new.python
    assert interpreter_of("ada/maze@0.9") == home / "agentrl-env-ada-maze-0.9" / "venv" / "bin" / "python"
    with pytest.raises(
        ConfigError, match=r"'ada/maze==0\.3': of it agentrl-env-ada-maze 0\.9, agentrl-env-ada-maze 0\.10 is"
    ):
        interpreter_of("ada/maze==0.3")
    with pytest.raises(UnknownNameError, match=r"environment 'ada/mase'\. Did you mean 'ada/maze'\?"):
        interpreter_of("ada/mase")
    with pytest.raises(UnknownNameError, match=r"environment 'bob/maze'\. Did you mean 'ada/maze'\?"):
        interpreter_of("bob/maze")
    assert interpreter_of("tests.zoo.good:Sums") is None
    assert interpreter_of("./maze") is None
    with pytest.raises(ConfigError, match=r"environment 'ada/maze@latest': write a version as @1\.2"):
        interpreter_of("ada/maze@latest")


def test_an_equal_version_comes_first_and_pre_releases_only_alone(home: Path) -> None:
    plain = write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    local = write_added(home, "agentrl-env-ada-maze", "0.1+abc", "ada/maze")
    early = write_added(home, "agentrl-env-ada-maze", "0.3rc1", "ada/maze")
    assert interpreter_of("ada/maze==0.1") == plain.python
    assert interpreter_of("ada/maze==0.1+abc") == interpreter_of("ada/maze~=0.1") == local.python
    assert interpreter_of("ada/maze==0.3rc1") == interpreter_of("ada/maze>=0.3rc1") == early.python
    with pytest.raises(ConfigError, match=r"ada-maze is added as .*0\.1, .*0\.1\+abc, .*0\.3rc1: name one of them"):
        remove("agentrl-env-ada-maze")
    assert remove("agentrl-env-ada-maze==0.1").folder == plain.folder
    assert remove("ada/maze==0.1").folder == local.folder
    assert remove("ada/maze").folder == early.folder


def test_an_added_environment_is_served_by_its_own_interpreter(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = write_added(home, "agentrl-env-ada-maze", "0.9", "ada/maze")
    assert main(["env", "serve", "ada/maze"]) == 2
    assert f"{item.python} -m agentrl env serve ada/maze" in capsys.readouterr().err


def test_an_installed_environment_comes_first_if_its_version_fits(home: Path) -> None:
    newer = write_added(home, "agentrl-env-guess", "9.0", "guess")
    assert interpreter_of("guess") is None
    assert interpreter_of("guess==0.1.0") is None
    assert interpreter_of("guess==9.0") == newer.python


def test_a_scheme_means_an_added_adapter_by_the_version_that_it_wraps(home: Path) -> None:
    item = write_added(home, "agentrl-adapter-puzzles", "1.0", scheme="puzzles")
    assert interpreter_of("puzzles:mirror") == item.python
    assert interpreter_of("puzzles:mirror@0.3") == item.python
    assert interpreter_of("puzzles:mirror==1.0") is None
    assert interpreter_of("json:JSONDecoder") is None


def test_two_owners_of_one_name_are_told_apart_by_the_owner(home: Path) -> None:
    ada = write_added(home, "agentrl-env-ada-math2", "1.0", "math2")
    write_added(home, "agentrl-env-bob-math2", "1.0", "math2")
    assert interpreter_of("ada/math2") == ada.python
    with pytest.raises(ConfigError, match=r"agentrl-env-ada-math2 and agentrl-env-bob-math2 are added .* write OWNER/"):
        interpreter_of("math2")


def test_an_environment_that_another_one_requires_is_none_of_that_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_added(home, "agentrl-env-base", "2.0", "base")
    top = write_added(home, "agentrl-env-top", "1.0", "top")
    offers = (*top.record.offers, *base.record.offers)
    (top.folder / "added.json").write_bytes(msgspec.json.encode(replace(top.record, offers=offers)))
    assert interpreter_of("base") == interpreter_of("base==2.0") == base.python
    assert interpreter_of("top") == top.python
    asked: list[tuple[str, Path | None]] = []

    def inspected(name: str, python: Path | None = None) -> Inspected:
        asked.append((name, python))
        return Inspected(PluginSource(name, "", "", ""), ())

    monkeypatch.setattr(lock, "inspect", inspected)
    write_lock(tmp_path / "my.lock")
    assert [each for each in asked if each[1]] == [("base==2.0", base.python), ("top==1.0", top.python)]
    assert remove("base").folder == base.folder
    with pytest.raises(UnknownNameError):
        remove("base")


def test_a_run_that_names_its_interpreter_keeps_it(home: Path) -> None:
    write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    config = load(None, of_flags([("env", "ada/maze"), ("env.python", "/opt/python")]))
    assert [str(env.python) for env in with_interpreters(config).env] == ["/opt/python"]


def test_a_run_whose_interpreter_was_removed_finds_the_one_that_was_added_again(home: Path) -> None:
    again = write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    gone = home / "agentrl-env-ada-maze-gone" / "venv" / "bin" / "python"
    for name in ("ada/maze==0.1", "ada/maze==0.2"):
        config = load(None, of_flags([("env", name), ("env.python", str(gone))]))
        if name.endswith("0.1"):
            assert [env.python for env in with_interpreters(config).env] == [again.python]
        else:
            with pytest.raises(ConfigError, match=r"add that version with `agentrl env add`"):
                with_interpreters(config)


@pytest.mark.parametrize("version", [1, "../x"])
def test_a_damaged_record_is_named(version: object, home: Path) -> None:
    item = write_added(home, "agentrl-env-ada-maze", "0.1", "ada/maze")
    record = json.loads((item.folder / "added.json").read_text())
    (item.folder / "added.json").write_text(json.dumps(record | {"version": version}))
    with pytest.raises(Exception, match="delete its folder, and add the environment again"):
        added()


# --- clashes in one interpreter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ("numpy<1", r"agentrl-env-tight needs numpy<1, but [\d.]+ is installed"),
        ("nonesuch>=2", "agentrl-env-tight needs nonesuch>=2, which is not installed"),
        ("nonesuch; extra == 'test'", ""),
        ("nonesuch; python_version < '3'", ""),
    ],
)
@pytest.mark.usefixtures("announced_anew")
def test_requirements_that_clash_are_refused_with_the_remedy(
    needs: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path, monkeypatch, "agentrl-env-tight", "tight = tight:Tight", needs)
    if not message:
        return clashes.check_clashes(["tight", "./tight", "guess"])
    with pytest.raises(ConfigError, match=f"{message}; install .*`agentrl env add agentrl-env-tight==1.0`"):
        clashes.check_clashes(["tight==1.0"])


@pytest.mark.usefixtures("announced_anew")
def test_two_distributions_with_one_module_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, monkeypatch, "agentrl-env-ada-sums", "ada/sums = agentrl_sums:Sums")
    announce(tmp_path, monkeypatch, "agentrl-env-bob-sums", "bob/sums = agentrl_sums:Sums")
    with pytest.raises(ConfigError, match="agentrl-env-ada-sums and agentrl-env-bob-sums both contain the module"):
        clashes.check_clashes(["ada/sums"])


def test_an_installed_version_that_does_not_fit_is_refused_with_the_remedy(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"give it an interpreter of its own with `agentrl env add 'guess==0\.2'`"):
        resolve("guess==0.2")
    with pytest.raises(UnknownNameError, match="or `agentrl env add ada/maze` for an interpreter of its own"):
        resolve("ada/maze")


def announce(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, point: str, needs: str = "") -> None:
    """Put a distribution that announces an environment on the path."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {needs}"] if needs else []
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines, ""]))
    (info / "entry_points.txt").write_text(f"[agentrl.envs]\n{point}\n")
    monkeypatch.syspath_prepend(folder)

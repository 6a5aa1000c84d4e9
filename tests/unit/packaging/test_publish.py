"""A package is published only if it passes its checks, whole, and never without being asked."""

from __future__ import annotations

import json
import os
import tarfile
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from agentrl.cli import env_publish
from agentrl.cli.main import main
from agentrl.errors import ConfigError
from agentrl.packaging import building
from agentrl.packaging.building import build, upload
from agentrl.packaging.scaffold import PackageName, write_package


def test_a_file_is_refused_before_it_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sums.py").write_text("1 / 0\n")
    assert main(["env", "publish", str(tmp_path / "sums.py")]) == 2
    out, err = capsys.readouterr()
    assert (out, "sums.py has no usable pyproject.toml" in err) == ("", True)


@pytest.mark.timeout(200)
def test_the_files_hold_the_package_and_nothing_of_an_older_build(tmp_path: Path) -> None:
    write_package(PackageName("ada", "published"), "dataset", tmp_path / "published")
    stale = tmp_path / "published" / "build" / "lib" / "agentrl_ada_published"
    stale.mkdir(parents=True)
    (stale / "removed.py").write_text("")
    run = tmp_path / "published" / "runs" / "first"
    run.mkdir(parents=True)
    for name in ("config.toml", "manifest.json"):
        (run / name).write_text("")
    before = sorted(tmp_path.rglob("*"))
    archive, wheel = build(tmp_path / "published", tmp_path / "out")
    assert sorted(path for path in tmp_path.rglob("*") if "out" not in path.parts) == before
    assert archive.name == "agentrl_env_ada_published-0.1.0.tar.gz"
    with ZipFile(wheel) as file:
        names = {name for name in file.namelist() if "dist-info" not in name}
        assert names == {f"agentrl_ada_published/{x}" for x in ("__init__.py", "env.py", "py.typed", "questions.jsonl")}
        [points] = [name for name in file.namelist() if name.endswith("entry_points.txt")]
        assert "ada/published = agentrl_ada_published:PublishedEnv" in file.read(points).decode()
    with tarfile.open(archive) as held:
        assert any(name.endswith("/pyproject.toml") for name in held.getnames())
        assert not any("/runs/first" in name for name in held.getnames())


def test_a_backend_that_fails_says_why(tmp_path: Path) -> None:
    table = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    for source, match in {
        "import no_such_module": "own cannot be imported:(?s:.*)No module named 'no_such_module'",
        "def build_sdist(out, settings): raise OSError('no disk')": "build_sdist ends with code 1:(?s:.*)no disk",
    }.items():
        (tmp_path / "own.py").write_text(source)
        with pytest.raises(ConfigError, match=match):
            build(tmp_path, tmp_path / "out")
    (tmp_path / "pyproject.toml").write_text(table.replace('"."', '"../elsewhere"'))
    with pytest.raises(ConfigError, match=r"own cannot build .*: paths must be inside source tree"):
        build(tmp_path, tmp_path / "out")
    (tmp_path / "pyproject.toml").write_text("build-system = 3")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="has no usable pyproject"):
            build(folder, tmp_path / "out")


def test_what_a_backend_prints_is_not_the_name_of_its_file(tmp_path: Path) -> None:
    hook = "def {0}(folder, settings=None, more=None):\n    atexit.register(print, 'done')\n    return '{0}'\n"
    source = "import atexit\nclass Own:\n    pass\n" + "".join(map(hook.format, ("build_sdist", "build_wheel")))
    (tmp_path / "own.py").write_text(source + "Own.build_sdist, Own.build_wheel = build_sdist, build_wheel\n")
    table = '[build-system]\nrequires = []\nbuild-backend = "own:Own"\nbackend-path = ["."]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    assert [file.name for file in build(tmp_path, tmp_path / "out")] == ["build_sdist", "build_wheel"]


def test_a_backend_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text("import threading\nthreading.Event().wait()\n")
    table = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    monkeypatch.setattr(building, "BUILD_S", 1.0)
    with pytest.raises(ConfigError, match="build_sdist runs longer than 1 s"):
        build(tmp_path, tmp_path / "out")


@pytest.mark.timeout(200)
def test_a_package_that_fails_a_check_is_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "unready"
    write_package(PackageName("ada", "unready"), "single", folder)
    env = folder / "agentrl_ada_unready" / "env.py"
    env.write_text(env.read_text().replace("return float(said ==", "return float(said >="))
    assert main(["env", "publish", str(folder)]) == 1
    assert "nothing was built: fix what failed first" in capsys.readouterr().out
    assert not (folder / "dist").exists()


TWINE = """
import json, sys
from pathlib import Path
Path({said!r}).write_text(json.dumps(sys.argv[1:]))
sys.exit({code})
"""
"""A module that is started as twine: it writes its words down."""


def write_twine(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Path:
    """Put a twine on the path that uploads nothing. Returns the file with the words that it got."""
    (folder / "bin").mkdir()
    (folder / "bin" / "twine.py").write_text(TWINE.format(said=str(folder / "said.json"), code=code))
    monkeypatch.syspath_prepend(folder / "bin")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "bin"), os.environ.get("PYTHONPATH", "")]))
    return folder / "said.json"


@pytest.mark.timeout(400)
def test_a_package_that_passes_is_built_and_uploaded_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, folder = write_twine(tmp_path, monkeypatch), tmp_path / "ready"
    write_package(PackageName("ada", "ready"), "single", folder)
    assert main(["env", "publish", str(folder), "--upload"]) == 0, capsys.readouterr().out
    files = [folder / "dist" / f"agentrl_env_ada_ready-0.1.0{end}" for end in (".tar.gz", "-py3-none-any.whl")]
    assert sorted((folder / "dist").iterdir()) == sorted(files)
    out = capsys.readouterr().out
    assert " 0 failed, " in out
    assert out.endswith("\nbuilt\n" + "".join(f"  {file}\n" for file in files))
    assert json.loads(said.read_text()) == ["upload", *map(str, files)]


def test_an_upload_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = write_twine(tmp_path, monkeypatch, code=1)
    with pytest.raises(ConfigError, match="twine could not upload the files"):
        upload([tmp_path / "a.whl"])
    assert json.loads(said.read_text()) == ["upload", str(tmp_path / "a.whl")]


def test_what_to_upload_is_quoted_for_a_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(env_publish, "check_package", lambda _: None)
    monkeypatch.setattr(env_publish.env_check, "run", lambda _: 0)
    monkeypatch.setattr(env_publish, "build", lambda folder, out: [out / "a.whl"])
    assert main(["env", "publish", "/my envs/a"]) == 0
    assert "to upload: python -m twine upload '/my envs/a/dist/a.whl'\n" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("twine") is not None, reason="twine is installed here")
def test_an_upload_without_twine_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "publish", str(tmp_path), "--upload"]) == 2
    assert "--upload needs a package: pip install twine" in capsys.readouterr().err

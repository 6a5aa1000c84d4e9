"""The manifest names what a run was made of, and changes when any of it changes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pydantic
import pytest

from agentrl.errors import ConfigError, RunError
from agentrl.records import manifest
from agentrl.records.folder import RunFolder


def test_it_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    source = manifest.plugin_source("math", pydantic.BaseModel)
    made = manifest.build_manifest([source], [tmp_path / "config.json"], {"model": tmp_path})
    manifest.write_manifest(RunFolder(tmp_path), made)
    assert manifest.read_manifest(RunFolder(tmp_path)) == made
    assert made.packages["pydantic"] == pydantic.VERSION
    assert made.models["model"][0].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert manifest.read_manifest(RunFolder(tmp_path / "none")) is None


def test_an_env_from_a_package_is_told_by_its_distribution() -> None:
    source = manifest.plugin_source("math", pydantic.BaseModel)
    assert (source.distribution, source.version) == ("pydantic", pydantic.VERSION)
    assert len(source.sha256) == 64


def test_a_package_in_a_folder_has_the_version_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "agentrl_guess"
    package.mkdir()
    (package / "__init__.py").write_text("")
    module = ModuleType("agentrl_guess")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "agentrl_guess", module)
    found = []
    for name in ("agentrl-env-guess", "another-project"):
        (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "7.1"\n')
        source = manifest.plugin_source(str(tmp_path), type("Guess", (), {"__module__": "agentrl_guess.env"}))
        found.append((source.distribution, source.version))
    installed = importlib.metadata.version("agentrl-env-guess")
    assert found == [("agentrl-env-guess", "7.1"), ("agentrl-env-guess", installed)]
    assert installed != "7.1"


def test_a_pickled_env_whose_module_is_not_here_is_told_by_its_pickle(tmp_path: Path) -> None:
    (tmp_path / "env.pkl").write_bytes(b"1")
    source = manifest.plugin_source(str(tmp_path / "env.pkl"), type("Gone", (), {"__module__": "gone.envs"}))
    assert [file.name for file in source.files] == ["env.pkl"]


def test_an_env_in_a_file_is_told_by_the_hash_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent_func_for_test.py"
    path.write_text("class Mine:\n    pass\n")
    spec = importlib.util.spec_from_file_location("agent_func_for_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    source = manifest.plugin_source("./agent_func.py", module.Mine)
    del sys.modules[spec.name]
    one = manifest.hash_file(path)
    assert source == manifest.PluginSource("./agent_func.py", "", "", one.sha256, (one,))


def test_a_changed_byte_or_name_changes_the_hash_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "rows.jsonl").write_text("{}")
    hashes = [manifest.hash_source(tmp_path)]
    for name in ("a.py", "rows.jsonl"):
        (tmp_path / name).write_text("2\n")
        hashes.append(manifest.hash_source(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({*hashes, manifest.hash_source(tmp_path)}) == 4


@pytest.mark.parametrize("name", ["__pycache__/a.pyc", ".a.py.swp", ".cache/a.py"])
def test_bytecode_and_hidden_files_are_no_source(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    first = manifest.hash_source(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1")
    assert manifest.hash_source(tmp_path) == first


def test_folders_that_links_lead_to_are_source_and_each_is_read_once_below_itself(tmp_path: Path) -> None:
    source, rows = tmp_path / "source", tmp_path / "rows"
    for folder in (source, rows):
        folder.mkdir()
    (source / "a.py").touch()
    (rows / "train.jsonl").touch()
    (source / "data").symlink_to(rows)
    (rows / "again").symlink_to(source)
    (source / "gone").symlink_to(tmp_path / "nowhere")
    (source / "self").symlink_to(source / "self")
    assert [file.name for file in manifest.hash_files(source)] == ["a.py", "data/train.jsonl"]


def test_a_wrapped_folder_or_file_is_named_without_its_place(tmp_path: Path) -> None:
    for home in ("one", "two"):
        (tmp_path / home / "games").mkdir(parents=True)
        (tmp_path / home / "loose.py").write_text("x = 1\n")
    one, two = (
        [manifest.wrapped(str(tmp_path / home / name)) for name in ("games", "loose.py")] for home in ("one", "two")
    )
    assert one == two
    assert [each.distribution for each in one] == ["games/", "loose.py"]


def test_data_that_a_wheel_installs_elsewhere_counts_and_scripts_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, elsewhere = tmp_path / "lib" / "site" / "far_rows-1.0.dist-info", ("share/far/bin/rows", "bin/far")
    for name in (*elsewhere, "lib/site/far.py", "lib/site/far_rows-1.0.dist-info/METADATA"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Metadata-Version: 2.1\nName: far-rows\nVersion: 1.0\n")
    (info / "RECORD").write_text(
        "".join(f"{name},,\n" for name in ("far.py", *(f"../../{name}" for name in elsewhere)))
    )
    monkeypatch.syspath_prepend(info.parent)
    before = manifest.wrapped("far-rows")
    (tmp_path / "bin/far").write_text("#!/another/python")
    assert manifest.wrapped("far-rows") == before
    (tmp_path / "share/far/bin/rows").write_text("another")
    assert manifest.wrapped("far-rows") != before


def made_of(folder: Path) -> manifest.RunManifest:
    files = tuple(manifest.hash_files(folder / "env"))
    env = manifest.PluginSource("x", "", "", manifest.hash_source(folder / "env"), files)
    return manifest.build_manifest([env], [folder / "rows.jsonl"], {"model": folder / "model"})


def test_what_changed_since_a_run_began_is_named(tmp_path: Path) -> None:
    for name, text in (("env/a.py", "1"), ("env/sub/b.py", "2"), ("rows.jsonl", "{}"), ("model/config.json", "{}")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    began = made_of(tmp_path)
    assert manifest.changes(began, made_of(tmp_path)) == []
    (tmp_path / "env/sub/b.py").write_text("3")
    (tmp_path / "env/c.py").touch()
    (tmp_path / "env/a.py").unlink()
    (tmp_path / "rows.jsonl").write_text("[]")
    now = made_of(tmp_path)
    now.packages["pydantic"] = "0.1"
    assert manifest.changes(began, now) == [
        "source: a.py (gone)",
        "source: c.py (new)",
        "source: sub/b.py",
        "data: rows.jsonl",
        f"pydantic {pydantic.VERSION} → 0.1",
    ]


def test_a_manifest_without_files_still_shows_that_the_source_changed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    old, new = manifest.PluginSource("x", "", "", "0" * 64), manifest.PluginSource("x", "", "", "1" * 64)
    made = [manifest.build_manifest([env], [], {"model": tmp_path}) for env in (old, new)]
    assert manifest.changes(made[0], made[1]) == ["the source"]


def test_a_resume_with_other_software_writes_a_manifest_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    made = manifest.build_manifest([manifest.PluginSource("x", "", "", "0" * 64)], [], {"model": tmp_path})
    assert manifest.write_manifest(RunFolder(tmp_path), made) == ""
    for python in ("3.0", "3.1"):
        changed = manifest.write_manifest(RunFolder(tmp_path), replace(made, python=python))
        assert changed == f"Changed since the run started: python {made.python} → {python}."
    for _ in range(2):  # the first again, which is written once
        assert manifest.write_manifest(RunFolder(tmp_path), made) == ""
    assert manifest.read_manifest(RunFolder(tmp_path)) == manifest.newest_manifest(RunFolder(tmp_path)) == made
    assert sorted(p.name for p in tmp_path.glob("manifest-*")) == [f"manifest-{number}.json" for number in (1, 2, 3)]


def test_a_changed_model_is_refused_with_its_role(tmp_path: Path) -> None:
    run, policy, critic = RunFolder(tmp_path / "run"), tmp_path / "policy", tmp_path / "critic"
    for folder in (run.path, policy, critic):
        folder.mkdir()
    for folder in (policy, critic):
        (folder / "model.safetensors").write_text("1")
        (folder / "README.md").write_text("not loaded")
    env = manifest.PluginSource("x", "", "", "0" * 64)
    models = {"model": policy, "critic": critic, "teacher": policy}
    assert manifest.write_manifest(run, manifest.build_manifest([env], [], models)) == ""
    (critic / "README.md").write_text("another")
    assert manifest.write_manifest(run, manifest.build_manifest([env], [], models)) == ""
    (critic / "model.safetensors").write_text("2")
    with pytest.raises(ConfigError, match=r"started: critic: model\.safetensors\. Restore these files"):
        manifest.write_manifest(run, manifest.build_manifest([env], [], models))
    (policy / "model.safetensors").write_text("2")
    with pytest.raises(ConfigError, match=r"started: model: .*; critic: .*; teacher: model\.safetensors\."):
        manifest.write_manifest(run, manifest.build_manifest([env], [], models))
    assert [path.name for path in run.path.iterdir()] == ["manifest.json"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.jsonl"):
        manifest.hash_file(tmp_path / "gone.jsonl")


@pytest.mark.parametrize("damaged", [b"{", b"\xff", b"{}"])
def test_a_damaged_manifest_says_what_to_do(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(damaged)
    with pytest.raises(RunError, match=r"manifest.json cannot be read \(.*\): delete it"):
        manifest.read_manifest(RunFolder(tmp_path))


def test_a_changed_package_names_the_environment_in_whose_interpreter_it_is() -> None:
    here = manifest.PluginSource("ada/maze", "agentrl-env-ada-maze", "1", "00")
    apart = replace(here, interpreter=manifest.Interpreter("3.12", {"pydantic": "2.14.4"}))
    assert manifest.env_changes(here, apart) == [
        "pydantic in the interpreter of ada/maze absent → 2.14.4",
        "python in the interpreter of ada/maze absent → 3.12",
    ]

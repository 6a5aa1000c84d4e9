"""The manifest names what a run was made of, and changes when any of it changes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pydantic
import pytest

from agentrl.errors import ConfigError
from agentrl.run import manifest
from agentrl.run.folder import RunFolder


def test_it_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    source = manifest.env_source("math", pydantic.BaseModel)
    made = manifest.describe(source, [tmp_path / "config.json"], tmp_path)
    manifest.write(RunFolder(tmp_path), made)
    assert manifest.read(RunFolder(tmp_path)) == made
    assert made.packages["pydantic"] == pydantic.VERSION
    assert made.model[0].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert manifest.read(RunFolder(tmp_path / "none")) is None


def test_an_env_from_a_package_is_told_by_its_distribution() -> None:
    source = manifest.env_source("math", pydantic.BaseModel)
    assert (source.distribution, source.version) == ("pydantic", pydantic.VERSION)
    assert len(source.sha256) == 64


def test_an_env_in_a_file_is_told_by_the_hash_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent_func_for_test.py"
    path.write_text("class Mine:\n    pass\n")
    spec = importlib.util.spec_from_file_location("agent_func_for_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    source = manifest.env_source("./agent_func.py", module.Mine)
    del sys.modules[spec.name]
    assert source == manifest.EnvSource("./agent_func.py", "", "", manifest.hash_file(path).sha256)


def test_a_changed_byte_or_name_changes_the_hash_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("not source")
    first = manifest.hash_source(tmp_path)
    (tmp_path / "notes.txt").write_text("still not source")
    assert manifest.hash_source(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2\n")
    second = manifest.hash_source(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, manifest.hash_source(tmp_path)}) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.jsonl"):
        manifest.hash_file(tmp_path / "gone.jsonl")

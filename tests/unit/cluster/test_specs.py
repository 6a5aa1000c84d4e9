"""A process refuses a machine that does not see what the run needs there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.specs import critic_spec, engine_spec, learner_spec
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder, marked

CONFIG = Config.model_validate({"device": "cpu", "critic": {"placement": "separate"}})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("no model")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.config.touch()
    return folder


def refused(spec: ActorSpec) -> str:
    with pytest.raises(ConfigError) as refusal:
        spec.factory(*spec.args, "127.0.0.1", 1)
    return str(refusal.value)


@pytest.mark.parametrize("spec_of", [learner_spec, critic_spec])
def test_a_rank_refuses_a_machine_that_has_no_run_folder_or_a_copy(
    run: RunFolder, model: Path, spec_of: Callable[[Config, Path, Path, str, int], ActorSpec]
) -> None:
    stale = run.path.with_name("stale")
    marked(run)
    shutil.copytree(run.path, stale)
    spec = spec_of(CONFIG, model, run.path, marked(run), 0)
    shutil.rmtree(run.path)
    assert f"does not see {run.path}: put run folders and models on a file system that all" in refused(spec)
    stale.rename(run.path)
    assert f"has a folder {run.path} of its own: put run folders" in refused(spec)
    run.mark.unlink()
    assert f"has a folder {run.path} of its own" in refused(spec)


@pytest.mark.parametrize("spec_of", [learner_spec, critic_spec])
def test_the_threads_of_a_rank_do_not_wait_long_for_each_other(
    run: RunFolder,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    spec_of: Callable[[Config, Path, Path, str, int], ActorSpec],
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert spec_of(CONFIG, model, run.path, marked(run), 0).env["GOMP_SPINCOUNT"] == "2000"


def test_a_rank_reads_the_mark_of_the_last_start(run: RunFolder, model: Path) -> None:
    spec = learner_spec(CONFIG, model, run.path, marked(run), 0)
    shutil.rmtree(model)
    assert f"does not see {model}" in refused(spec), "the run folder is the right one"


def test_an_engine_refuses_a_machine_without_its_model(model: Path, tmp_path: Path) -> None:
    spec = engine_spec(CONFIG, model, tmp_path, 0)
    shutil.rmtree(model)
    with pytest.raises(ConfigError, match=f"does not see {model}"):
        spec.factory(*spec.args)

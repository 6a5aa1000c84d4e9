"""A process refuses a machine that does not see what the run needs there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agentrl.cluster import specs
from agentrl.cluster.ray.actors import ActorSpec, interface_of
from agentrl.cluster.specs import _learner_spec, _rank_spec, critic_spec, engine_spec, learner_spec
from agentrl.config.models import Models
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


@pytest.mark.parametrize("placement", ["separate", "colocate"])
def test_a_rank_knows_whether_it_yields_its_gpu_and_the_size_of_a_bucket(model: Path, placement: str) -> None:
    config = Config.model_validate({"engine": {"placement": placement}, "weights": {"bucket_mib": 3}})
    spec = _learner_spec(config, Models(model))
    assert (spec.yields_gpus, spec.bucket_bytes) == (placement == "colocate", 3 << 20)


@pytest.mark.parametrize(("set_by_user", "used"), [(None, "eth1"), ("ib0", "ib0")])
def test_gloo_uses_the_interface_of_the_address_in_the_cluster_unless_the_user_names_another(
    run: RunFolder, model: Path, monkeypatch: pytest.MonkeyPatch, set_by_user: str | None, used: str
) -> None:
    """It would take that of the host's name, which is often 127.0.1.1."""
    address = lambda each: SimpleNamespace(address=each)  # noqa: E731
    found = {"lo": [address("127.0.0.1")], "eth0": [address("10.0.0.1")], "eth1": [address("::1"), address("10.0.0.2")]}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    monkeypatch.setattr(specs, "node_address", lambda: "10.0.0.2")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", set_by_user or "")
    if set_by_user is None:
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    on_gpus = CONFIG.model_copy(update={"device": "cuda"})  # on a CPU, this process would keep its memory
    _rank_spec(on_gpus, Models(model), run.path, marked(run))
    assert os.environ["GLOO_SOCKET_IFNAME"] == used
    assert interface_of("10.0.0.3") == ""


def test_an_engine_refuses_a_machine_without_its_model(model: Path, tmp_path: Path) -> None:
    spec = engine_spec(CONFIG, model, tmp_path, 0)
    shutil.rmtree(model)
    with pytest.raises(ConfigError, match=f"does not see {model}"):
        spec.factory(*spec.args)

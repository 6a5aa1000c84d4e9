"""A replay refuses what cannot give the recorded weights."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.metrics.step import PhaseSeconds, StepRecord
from agentrl.records.folder import RunFolder
from agentrl.records.manifest import build_manifest, plugin_source, write_manifest
from agentrl.training.replay import ReplayPlan, check_layout, check_models
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


def test_a_step_that_another_layout_trained_is_refused_by_its_number() -> None:
    config = Config.model_validate({"learner": {"ranks": 2, "threads": 1, "zero_stage": 1}})
    now = config.critic.layout(config.learner)
    other = config.critic.layout(config.learner.model_copy(update={"ranks": 4}))
    check_layout(config, ReplayPlan(0, (trained(1, ""), trained(2, now))))
    with pytest.raises(ConfigError, match=r"step 3 was trained by 4 x 1 threads at ZeRO stage 1, .* to 2 x 1 threads"):
        check_layout(config, ReplayPlan(0, (trained(2, now), trained(3, other))))


def trained(step: int, layout: str) -> StepRecord:
    report = StepReport(0.0, 1.0, 1e-5, 8, 1, (), 1.0, layout=layout)
    return StepRecord(step, f"0.{step}", 0.0, 0.5, 0.5, 8, report, PhaseSeconds())

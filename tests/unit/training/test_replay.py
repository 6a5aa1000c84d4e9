"""A replay refuses what cannot give the recorded weights."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.records.manifest import build_manifest, plugin_source, write_manifest
from agentrl.training.replay import check_models


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

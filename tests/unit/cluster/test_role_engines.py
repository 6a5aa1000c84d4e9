"""The engine of a role is one process on a GPU of its own, whatever the engines of the policy share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentrl.cluster import role_engines
from agentrl.cluster.role_engines import RoleEngines
from agentrl.config.schema import EngineSection
from agentrl.engine.vllm.settings import VllmSpec
from tests.unit.planning.published import config


@pytest.mark.parametrize(
    ("placement", "given", "share"), [("colocate", 0.45, 0.9), ("colocate", 0.25, 0.9), ("separate", 0.8, 0.8)]
)
def test_it_uses_the_gpu_that_it_has_alone(
    placement: str, given: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[VllmSpec] = []
    monkeypatch.setattr(role_engines, "locate", Path)
    monkeypatch.setattr(role_engines, "engine_actor", lambda _, spec, __: specs.append(spec))
    for name in ("Engines", "Publisher", "StagedTransfer", "HostRelay"):
        monkeypatch.setattr(role_engines, name, lambda *_: SimpleNamespace())
    resolved = config(
        roles__judge__model="./judge",
        engine__placement=placement,
        engine__gpu_memory_utilization=given,
        engine__count=2,
        engine__tensor_parallel=2,
    )
    unused = cast("Any", None)
    RoleEngines(unused, unused, resolved, 0, Path("run"), Path("scratch"), unused, unused, unused)
    engine: EngineSection = specs[0].engine
    assert engine.gpu_memory_utilization == share
    assert (engine.count, engine.gpus, engine.placement) == (1, 1, "separate")

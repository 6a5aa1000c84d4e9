"""A step of engines and learner that take turns on GPUs, from the session down to the optimizer's memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from agentrl.algorithms import resolve
from agentrl.algorithms.sample import TrainSequence
from agentrl.cluster.learners import Learners
from agentrl.config.schema import LearnerSection
from agentrl.engine.scripted import ScriptedEngine
from agentrl.learner.deepspeed import DeepSpeedModel
from agentrl.learner.offload import OptimizerMemory
from agentrl.learner.part import Layout
from agentrl.learner.policy import Policy
from agentrl.types import StepReport, Version
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import StagedBucket, stage
from agentrl.weights.transfer import StagedTransfer
from tests.unit.cluster.test_engines import Run as EnginesRun
from tests.unit.training.test_session import Learner
from tests.unit.training.test_session import Run as SessionRun

PUBLICATION = [
    "engine: wake",
    "learner: stage",
    "engine: pause",
    "engine: start_update",
    "engine: load",
    "engine: finish_update",
    "engine: resume",
]


class Model:
    """A model whose optimizer waits in CPU memory: it records when it needs the GPU. It is DeepSpeed's engine too."""

    def __init__(self, trace: list[str]) -> None:
        self._trace = trace
        self._memory = OptimizerMemory(self, 2, torch.device("cpu"))

    def accumulate(self, *_: Any) -> torch.Tensor:
        self._trace.append("learner: gradient")
        return torch.zeros(())

    def optimizer_on_device(self) -> AbstractContextManager[None]:
        return self._memory.on_device()

    def step(self, _lr: float) -> float:
        self._trace.append("learner: step")
        return 1.0

    def offload_states(self, include: tuple[str, ...]) -> None:
        self._trace.append(f"learner: offload {', '.join(include)}")

    def reload_states(self) -> None:
        self._trace.append("learner: onload")


class Ranks(Learner):
    """The only rank of a learner, in this process."""

    def __init__(self, trace: list[str], folder: Path) -> None:
        super().__init__()
        self._trace, self._folder = trace, folder
        model, layout = cast(DeepSpeedModel, Model(trace)), Layout(0, 1, 4096, torch.device("cpu"), torch.float32)
        self._policy = Policy(model, resolve("grpo")(), LearnerSection(lr=1e-5, schedule="constant"), layout, 10)

    async def step(self, batch: list[TrainSequence], state: dict[str, float], deadline_s: float) -> list[StepReport]:
        self._policy.update(batch, 0)
        return await super().step(batch, state, deadline_s)

    async def buckets(self, _version: Version, _deadline_s: float) -> AsyncGenerator[StagedBucket]:
        for bucket in stage([("a", torch.ones(4))], self._folder, 1 << 20):
            self._trace.append("learner: stage")
            yield bucket


async def test_engine_and_optimizer_are_never_on_the_gpu_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace: list[str] = []
    for name in ("sleep", "wake", "pause", "start_update", "load", "finish_update", "resume"):
        method = getattr(ScriptedEngine, name)

        def recorded(*args: Any, _name: str = name, _method: Any = method) -> Any:
            trace.append(f"engine: {_name}")
            return _method(*args)

        monkeypatch.setattr(ScriptedEngine, name, recorded)
    (tmp_path / "engines").mkdir()
    engines, run = EnginesRun(tmp_path / "engines", shares_gpus=True), SessionRun(tmp_path / "run")
    ranks = Ranks(trace, tmp_path)
    run.learner, run.session.learners = ranks, cast(Learners, ranks)
    run.session.publisher = Publisher(engines.engines, StagedTransfer(ranks.buckets), 10.0, shares_gpus=True)
    await engines.start()
    assert trace == ["learner: offload hp_params, optim_states", "engine: sleep"]
    trace.clear()
    await run.session.open([], {}, set())
    assert trace == PUBLICATION
    trace.clear()
    await run.step("update")
    assert trace == [
        "engine: sleep",
        "learner: gradient",
        "learner: onload",
        "learner: step",
        "learner: offload hp_params, optim_states",
        *PUBLICATION,
    ]
    trace.clear()
    run.publications.published.append(run.session.version)
    run.is_equal = True
    await run.step("silent")
    assert trace == [], "without a signal no turn changes"
    await run.close()
    await engines.close()

"""What ends a command: its reason, whatever it cancels."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.cluster.signals import Stopped
from agentrl.config.schema import Config
from agentrl.env.registry import resolve
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.training import loop
from agentrl.training.inputs import RunInputs

CONFIG = Config.model_validate({"env": {"name": "guess"}, "track": {"tensorboard": False}})


async def test_an_evaluation_that_is_stopped_twice_ends_with_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[None]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(loop, "open_evaluation", opened)
    inputs = RunInputs(resolve("guess"), tmp_path, "")
    evaluating = asyncio.create_task(loop.run_evaluation(CONFIG, inputs, RunFolder(tmp_path), PhaseTimer()))
    with pytest.raises(Stopped, match="SIGINT"):
        await evaluating

"""What ends a command: its reason, whatever it cancels."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.cluster.signals import Stopped
from agentrl.config.schema import Config
from agentrl.env.registry import resolve
from agentrl.errors import RunError
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
    inputs = RunInputs((resolve("guess"),), tmp_path, "")
    evaluating = asyncio.create_task(loop.run_evaluation(CONFIG, inputs, RunFolder(tmp_path), PhaseTimer()))
    with pytest.raises(Stopped, match="SIGINT"):
        await evaluating


@pytest.mark.parametrize("failure", [RunError("engines died."), PermissionError("engines died.")])
async def test_the_reason_of_an_end_and_how_to_continue_are_one_sentence(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[None]:
        raise failure
        yield

    ended: list[object] = []
    monkeypatch.setattr(loop, "open_run", opened)
    monkeypatch.setattr(loop, "finish", lambda *args: ended.append(args[-1]))
    inputs = RunInputs((resolve("guess"),), tmp_path, "")
    with pytest.raises(type(failure), match="engines died"):
        await loop.run_training(CONFIG, inputs, RunFolder(tmp_path), PhaseTimer())
    assert ended == [f"engines died; go on with `agentrl resume {tmp_path}`"]


def test_the_process_of_the_loop_imports_no_torch_and_no_transformers() -> None:
    code = (
        "import sys, agentrl.training.loop, agentrl.training.setup\nprint({'torch', 'transformers'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=55)
    assert answer.stdout == "set()\n"

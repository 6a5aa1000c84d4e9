"""A run serves a reward model, which is killed before it scores the first batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import Run as RunReader
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import read_restarts
from tests.real.runs import BATCH, Run, Stage
from tests.tiny import tiny_model, tiny_reward_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
NAME = "reward model helpful"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.close()


def test_a_killed_reward_model_is_replaced_and_every_sample_is_scored(run: Run, tmp_path: Path) -> None:
    stage, model = Stage(tmp_path), tiny_model(tmp_path / "model")
    served = f'{{name = "helpful", model = "{tiny_reward_model(tmp_path / "rm")}", weight = 0.5}}'
    run.train(model, *stage.flags, "--steps", "1", "--reward.models", f"[{served}]")
    run.until(lambda: len(stage.waiting()) == BATCH, 400)
    os.kill(run.pid(NAME), signal.SIGKILL)
    stage.release()
    assert run.end(400) == 0, run.said

    assert [restart.process for restart in read_restarts(RunFolder(run.path))] == [NAME]
    signals = [{s.name: s.value for s in t.signals} for t in RunReader(run.path).trajectories()]
    assert len(signals) == BATCH
    assert all(isinstance(found["helpful"], float) and found.keys() == {"length", "helpful"} for found in signals)
    assert run.summary().conservation.holds
    assert run.summary().counts.trained == BATCH
    assert run.remains() == []

"""No process of a vLLM engine outlives the one that started it, however that one ends."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import select
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.config.schema import EngineSection
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.errors import DeadlineError, EngineError
from tests.real.vllm_kit import UNCLOSED, model_at, spec

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings(UNCLOSED), pytest.mark.timeout(300)]
ACTOR = """
import asyncio, json, pickle, sys
from pathlib import Path
from agentrl.engine.vllm.engine import VllmEngine

async def main():
    engine = VllmEngine(pickle.loads(Path(sys.argv[1]).read_bytes()))
    await engine.start(240.0)
    print(json.dumps(engine.pids()), flush=True)
    await asyncio.sleep(300.0)

if __name__ == "__main__":
    asyncio.run(main())
"""


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process that is not our child ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def test_kill_9_of_the_actor_ends_the_engine_core(tmp_path: Path) -> None:
    script = tmp_path / "actor.py"
    script.write_text(ACTOR)
    section = EngineSection(kv_cache_gib=0.1, enforce_eager=True)
    spec_file = tmp_path / "spec.pkl"
    spec_file.write_bytes(pickle.dumps(VllmSpec(str(model_at(tmp_path / "model")), section, "float32", 64)))
    command = [sys.executable, str(script), str(spec_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd(), env=_environment()) as actor:
        try:
            assert actor.stdout is not None
            actor_pid, *children = json.loads(actor.stdout.readline())
            assert actor_pid == actor.pid
            assert children
        finally:
            actor.kill()
        for child in children:
            assert ends_within(child, 10.0), "the EngineCore outlived its parent"


async def test_a_start_past_its_deadline_leaves_nothing(tmp_path: Path) -> None:
    engine = VllmEngine(spec(model_at(tmp_path)))
    with pytest.raises(DeadlineError):
        await engine.start(4.0)
    await engine.close()
    assert engine.pids() == [os.getpid()]


async def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    engine = VllmEngine(VllmSpec(str(tmp_path / "nothing")))
    with pytest.raises(EngineError, match="nothing"):
        await engine.start(120.0)
    await asyncio.wait_for(engine.close(), 30.0)


async def test_what_failed_in_a_process_of_vllm_is_said(tmp_path: Path) -> None:
    model = model_at(tmp_path)
    (weights,) = model.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:5000])
    engine = VllmEngine(spec(model))
    with pytest.raises(EngineError, match=r"could not start with .*\.SafetensorError: Error while deserializing"):
        await engine.start(120.0)
    await asyncio.wait_for(engine.close(), 30.0)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path.cwd())}

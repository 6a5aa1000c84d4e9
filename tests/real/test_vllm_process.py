"""No process of a vLLM engine outlives the one that started it, however that one ends."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.engine.vllm import Process, VllmEngine, VllmSpec
from agentrl.errors import DeadlineError, EngineError
from tests.real.vllm_kit import UNCLOSED, model_at, spec

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings(UNCLOSED), pytest.mark.timeout(300)]
ACTOR = """
import asyncio, json, sys
from agentrl.engine.vllm import VllmEngine, VllmSpec

async def main():
    engine = VllmEngine(VllmSpec(**json.loads(sys.argv[1])))
    await engine.start(240.0)
    print(json.dumps(engine.pids()), flush=True)
    await asyncio.sleep(300.0)

if __name__ == "__main__":
    asyncio.run(main())
"""


def ends_within(process: Process, seconds: float) -> bool:
    """Whether a process that is not our child ends in time."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def test_kill_9_of_the_actor_ends_the_engine_core(tmp_path: Path) -> None:
    script = tmp_path / "actor.py"
    script.write_text(ACTOR)
    fields = {"model": str(model_at(tmp_path / "model")), "dtype": "float32", "max_model_len": 64, "kv_cache_gib": 0.1}
    command = [sys.executable, str(script), json.dumps(fields)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd(), env=_environment()) as actor:
        assert actor.stdout is not None
        actor_process, *children = [Process(*pair) for pair in json.loads(actor.stdout.readline())]
        assert actor_process.pid == actor.pid
        assert children
        actor.send_signal(signal.SIGKILL)
        for child in children:
            assert ends_within(child, 10.0), "the EngineCore outlived its parent"


async def test_a_start_past_its_deadline_leaves_nothing(tmp_path: Path) -> None:
    engine = VllmEngine(spec(model_at(tmp_path)))
    with pytest.raises(DeadlineError):
        await engine.start(4.0)
    await engine.close()
    assert [process.pid for process in engine.pids()] == [os.getpid()]


async def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    engine = VllmEngine(VllmSpec(str(tmp_path / "nothing")))
    with pytest.raises(EngineError, match="nothing"):
        await engine.start(120.0)
    await asyncio.wait_for(engine.close(), 30.0)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path.cwd())}

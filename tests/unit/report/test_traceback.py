"""The traceback of what an environment raised comes through the worker and the store to whoever reads the sample."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.engine.scripted import ScriptedEngine
from agentrl.records.store import decode, encode
from agentrl.report.show import render
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import StopReason
from agentrl.types.trajectory import TRACEBACK
from tests.unit.report.test_html import transcribed
from tests.unit.rollout.cases import Listening, request
from tests.unit.rollout.templates import encode as encode_text
from tests.unit.rollout.templates import tokenizer

SOURCE = """
from agentrl.env import Env, Message, Task, reward
class Mine(Env):
    def tasks(self, split): return [Task("a")]
    {body}
"""
SETUP = "def setup(self, task, ctx): return {}['no key']"
ASKS = "def setup(self, task, ctx): return [Message(role='user', content='?')]"
REWARD = f"{ASKS}\n    @reward\n    def right(self, ctx): return {{}}['no key']"


@pytest.mark.parametrize(("body", "ended"), [(SETUP, StopReason.ENV_ERROR), (REWARD, StopReason.VERIFIER_ERROR)])
async def test_a_traceback_is_kept_and_shown(tmp_path: Path, body: str, ended: StopReason) -> None:
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE.replace("{body}", body))
    engine = Listening(
        await ScriptedEngine.ready(["yes"], encode=lambda text: encode_text(tokenizer(), text), vocab_size=320)
    )
    worker = RolloutWorker(str(tmp_path / "mine.py"), {}, str(tmp_path), engine, max_context=4000)
    trajectory = decode(encode(await worker.run(request(task_index=0))))
    await worker.close()
    assert trajectory.stop_reason is ended
    assert "KeyError: 'no key' (mine.py:" in trajectory.error
    assert "\n" not in trajectory.error
    console = Console(file=io.StringIO(), width=200)
    console.print(render(trajectory))
    for shown in (console.file.getvalue(), transcribed(trajectory)):  # type: ignore[attr-defined]
        assert "Traceback (most recent call last)" in shown
        assert "return {}[" in shown
        assert f'"{TRACEBACK}"' not in shown

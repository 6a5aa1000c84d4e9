"""The process of rollout workers plays each environment of the run, told apart by its label."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.cluster.specs import Worker
from agentrl.config.schema import POLICY, Config
from agentrl.types import HELD_OUT, TRAIN, EpisodeRequest, EpisodeSettings, SampleId
from tests.unit.rollout.templates import tokenizer

ENV = """
from agentrl.env import Env, EnvConfig, Task, reward

class Count(Env):
    class Config(EnvConfig):
        tasks: int = 1

    def tasks(self, split):
        return [Task(f"{split} {n} of {self.config.tasks}", n) for n in range(self.config.tasks)]

    def setup(self, task, ctx):
        return [{"role": "user", "content": f"Say {task.data}"}]

    @reward
    def said(self, ctx):
        return 0.0
"""
RANKED = "\n    @reward(scope='group')\n    def rank(self, episodes):\n        return [0.0 for _ in episodes]\n"


@pytest.fixture
def threshold() -> Iterator[None]:
    """Undo what the process of a worker does to the garbage collector."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("threshold")
async def test_each_environment_has_its_own_tasks_rewards_and_episodes(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "plain.py").write_text(ENV)
    (tmp_path / "ranked.py").write_text(ENV.replace("Count", "Ranked") + RANKED)
    tables = [
        {"name": str(tmp_path / "plain.py"), "alias": "few", "tasks": 2},
        {"name": str(tmp_path / "plain.py"), "alias": "many", "tasks": 9},
        {"name": str(tmp_path / "ranked.py")},
    ]
    worker = Worker("worker", {POLICY: ()}, Config.model_validate({"env": tables}), str(tmp_path / "model"))
    assert await worker.task_count(TRAIN) == {"few": 2, "many": 9, "ranked": 1}
    assert await worker.with_group_rewards() == {"ranked"}
    episode = EpisodeSettings(1.0, 8, 0, 10.0, 10.0)
    for label, size in (("few", 2), ("many", 9)):
        done = await worker.run(EpisodeRequest(SampleId(0, 0), 0, HELD_OUT, 1, 0, episode, label))
        assert (done.env, done.task_id) == (label, f"test 1 of {size}"), done.error
    await worker.close()

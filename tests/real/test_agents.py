"""What others bring trains on the real stack: agents, files of OpenRLHF, and added environments of several owners."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from agentrl import Run as RunReader
from agentrl.metrics.trackers import read_steps
from agentrl.packaging.adding import Request, add
from agentrl.records.folder import RunFolder
from agentrl.types import StopReason
from tests.real.runs import BATCH, GROUP_SIZE, Run, lawful
from tests.tiny import tiny_model
from tests.unit.packaging.wheels import write_base, write_maze

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
AGENT = """
import asyncio

from agentrl.env import AgentEnv, Task, reward


class Talker(AgentEnv):
    def tasks(self, split):
        return [Task(f"{split}/{n}", n) for n in range(6)]

    async def play(self, task, ctx, model):
        assert isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)  # the loop of the dry run
        messages = [{"role": "user", "content": f"Say {task.data}."}]
        for _ in range(2):
            completion = await model.client.chat.completions.create(model=model.name, messages=messages)
            text = completion.choices[0].message.content or ""
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Again."}]
        return text

    @reward
    def length(self, ctx):
        return float(len(ctx.result))
"""
INSTANCE = """
import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor


class Quiz(AgentInstanceBase):
    def __init__(self, *args, **kwargs):
        self.turn = 0

    async def reset(self, states, **kwargs):
        return {"observation": "<|im_start|>user\\n" + states["observation"] + "<|im_end|>\\n<|im_start|>assistant\\n"}

    async def step(self, states, **kwargs):
        self.turn += 1
        reward = torch.tensor(float(len(states["action_text"])))
        return {
            "rewards": reward,
            "scores": reward,
            "environment_feedback": "" if self.turn == 2 else "\\n<|im_start|>user\\nAgain.<|im_end|>\\n",
            "done": self.turn == 2,
            "sampling_params": states["sampling_params"],
            "extra_logs": {"turn": torch.tensor(self.turn)},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Quiz)
"""
REWARD = """
import torch


def reward_func(queries, prompts, labels, **kwargs):
    lengths = [len(query) - len(prompt) + len(label) for query, prompt, label in zip(queries, prompts, labels)]
    return {"rewards": torch.tensor(lengths).float(), "scores": torch.tensor(lengths).float(), "extra_logs": {}}
"""


@pytest.mark.parametrize(
    ("code", "turns"), [(AGENT, 2), (INSTANCE, 2), (REWARD, 1)], ids=["AgentEnv", "AgentInstanceBase", "reward_func"]
)
def test_agents_and_files_of_openrlhf_train(code: str, turns: int, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "brought.py"
    file.write_text(code)
    flags = ["--env", str(file), "--steps", "2"]
    if code is not AGENT:
        for split in ("train", "test"):
            rows = [{"prompt": f"Say {split} {n}.", "label": str(n)} for n in range(6)]
            (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        flags += ["--env.data", str(tmp_path / "train.jsonl"), "--env.data_heldout", str(tmp_path / "test.jsonl")]
    run.train(tiny_model(tmp_path / "model"), *flags)
    assert run.end(600) == 0, run.said
    counts = lawful(run).counts
    assert (counts.trained, counts.invalid, counts.lost) == (2 * BATCH, 0, 0)
    trained = run.attempts("trained")
    played = [each for each in RunReader(run.path).trajectories() if (each.sample, each.attempt) in trained]
    assert {each.turns for each in played} == {turns}
    assert {each.stop_reason for each in played} <= {StopReason.AGENT_DONE, StopReason.MAX_TOKENS}  # of a random model
    assert all(each.reward > 0 for each in played)


def test_two_owners_and_two_versions_train_in_one_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AGENTRL_HOME", str(tmp_path / "home"))
    links = tmp_path / "links"
    links.mkdir()
    write_base(links)
    mazes = {"ada/maze==0.1": 0.1, "ada/maze==0.2": 0.2, "bob/maze==0.3": 0.3}
    for maze in mazes:
        owner, version = maze.split("/maze==")
        write_maze(links, version, owner=owner)
        add(Request(maze, pip=("--no-index", "--find-links", str(links))))
    names = ",".join(mazes)
    run.train(tiny_model(tmp_path / "model"), "--env", names, "--prompts", str(len(mazes)), "--steps", "1")
    assert run.end(600) == 0, run.said
    assert lawful(run).counts.trained == len(mazes) * GROUP_SIZE
    trained = run.attempts("trained")
    played = [each for each in RunReader(run.path).trajectories() if (each.sample, each.attempt) in trained]
    assert Counter((each.env, each.reward) for each in played) == dict.fromkeys(mazes.items(), GROUP_SIZE)
    [step] = read_steps(RunFolder(run.path))
    assert {name: env.trained for name, env in step.envs.items()} == dict.fromkeys(mazes, GROUP_SIZE)

"""examples/functions_agent.py is `functions` with an agent: the same prompts, tasks and rewards."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import resolve
from agentrl.env.testing import check_canaries, check_oracle
from agentrl.rollout.episode import EpisodeRunner
from tests.unit.rollout.agents import TOOLED
from tests.unit.rollout.cases import Listening, check_law_1, request, stage
from tests.unit.rollout.templates import encode

pytest.importorskip("agents")
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "functions_agent.py")
SCRIPTS = {
    "right": '<tool_call>{"name": "set_alarm", "arguments": {"hour": 7, "minute": 5}}</tool_call>',
    "wrong": '<tool_call>{"name": "set_alarm", "arguments": {"hour": 8, "minute": 5}}</tool_call>',
    "unknown function": '<tool_call>{"name": "do_it", "arguments": {}}</tool_call>',
    "half an object": '<tool_call>{"name": "set_alarm", "arguments": {"hour": 7',
    "arguments that are no object": '<tool_call>{"name": "set_alarm", "arguments": 7}</tool_call>',
    "text": "None of the functions can do that.",
    "nothing": "",
}


async def test_the_solution_is_worth_1_and_the_canaries_nothing() -> None:
    await check_oracle(resolve(EXAMPLE))
    await check_canaries(resolve(EXAMPLE))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_an_answer_gets_the_same_reward_for_the_same_prompt(script: str) -> None:
    prompts, rewards = [], []
    for name in ("functions", EXAMPLE):
        engine = await ScriptedEngine.ready(
            [script], encode=lambda text: encode(TOOLED, text), vocab_size=len(TOOLED), max_model_len=8000
        )
        heard = Listening(engine)
        runtime = stage(heard, resolve(name), 8000, TOOLED)
        try:
            asked = request(split="test", task_index=3, max_tokens=400)
            trajectory = await EpisodeRunner(asked, runtime).run()
        finally:
            await runtime.endpoint.close()
        check_law_1(trajectory, heard.calls)
        assert trajectory.error == ""
        [(prompt, _, _)] = heard.calls
        prompts.append(prompt)
        rewards.append(trajectory.reward)
    assert prompts[0] == prompts[1]
    assert rewards == [float(script == SCRIPTS["right"])] * 2

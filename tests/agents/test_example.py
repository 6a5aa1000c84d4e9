"""The agents in examples/ play `functions` and `math`: the same tasks, prompts and rewards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import make_env, resolve
from agentrl.env.testing import check_canaries, check_oracle
from agentrl.rollout.episode import EpisodeRunner
from tests.unit.rollout.agents import TOOLED
from tests.unit.rollout.cases import Listening, check_law_1, request, stage
from tests.unit.rollout.templates import encode

pytest.importorskip("agents")
EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, CALCULATOR = str(EXAMPLES / "functions_agent.py"), str(EXAMPLES / "calculator_agent.py")
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


SUM = '<tool_call>{"name": "calculator", "arguments": {"expression": "%s"}}</tool_call>'
CALCULATIONS = {
    "a call and the answer": ([SUM % "GOLD + 0", "GOLD"], 1.0),
    "a call and another answer": ([SUM % "GOLD", "-1"], 0.0),
    "an answer at once": (["It is GOLD."], 1.0),
    "calls for ever": ([SUM % "1 + 1", SUM % "2 + 2", SUM % "GOLD + 0", "GOLD"], 0.0),
    "text beside the call": (["GOLD " + SUM % "1 / 3", "So it is GOLD"], 1.0),
}


@pytest.mark.parametrize(("script", "reward"), CALCULATIONS.values(), ids=CALCULATIONS)
async def test_the_calculator_is_called_over_the_same_tokens_for_the_same_reward(
    script: list[str], reward: float
) -> None:
    keys = {"level": 2, "tools": "calculator", "shots": 1, "turns": 3}
    heard_by, rewards = [], []
    for name in ("math", CALCULATOR):
        [task, *_] = await make_env(name, **keys).tasks("test")
        texts = [text.replace("GOLD", task.data.answer) for text in script]
        engine = await ScriptedEngine.ready(
            texts, encode=lambda text: encode(TOOLED, text), vocab_size=len(TOOLED), max_model_len=8000
        )
        heard = Listening(engine)
        runtime = stage(heard, partial(make_env, name, **keys), 8000, TOOLED)
        try:
            asked = request(split="test", task_index=0, max_tokens=400)
            trajectory = await EpisodeRunner(asked, runtime).run()
        finally:
            await runtime.endpoint.close()
        assert trajectory.error == ""
        check_law_1(trajectory, heard.calls)
        assert len(trajectory.sequences) == 1
        heard_by.append([prompt for prompt, _, _ in heard.calls])
        rewards.append(trajectory.reward)
    assert heard_by[0] == heard_by[1]
    assert rewards == [reward] * 2

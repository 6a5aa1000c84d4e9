"""`play` does what training does: members of one group, and every reward."""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl.env import AgentEnv, Context, Env, Limits, Message, Model, Reply, StopReason, Task, Turn, play, reward
from agentrl.env.testing import rehearse
from agentrl.errors import ConfigError, EnvError
from tests.unit.env.worlds import Desk, Echo, Talk


def test_rewards_of_every_scope_are_asked_for_every_member() -> None:
    long, short = play(Talk(), ["a", "b", "c", "d"], ["so many words", "e"], index=2)
    assert [(s.name, s.value, s.turn) for s in long.signals] == [
        *(("brief", 1.0, turn) for turn in range(4)),
        ("whole", 4.0, None),
        ("best", 1.0, None),
    ]
    assert [s.value for s in short.signals] == [0.0, 1.0, 1.0, 1.0, 4.0, 1.0]
    assert (long.reward, short.reward) == (4 * 0.5 + 4 + 2, 3 * 0.5 + 4 + 2)
    assert (long.member, short.member, long.task.index) == (0, 1, 2)
    assert long.stop_reason is StopReason.ENV_DONE


def test_members_have_their_own_randomness_and_the_same_task() -> None:
    episodes = play(Echo(), ["1"], ["1"], seed=3)
    assert len({str(episode.messages[0]) for episode in episodes}) == 2
    assert {episode.task.id for episode in episodes} == {"train-0"}
    assert play(Echo(), ["1"], ["1"], seed=3) == episodes


def test_a_policy_may_be_a_function_and_a_list_that_has_ended_gives_empty_turns() -> None:
    def counting(messages: list[Message]) -> str:
        return f"{len(messages)} messages"

    talking, silent = play(Talk(), counting, [])
    assert [m["content"] for m in talking.messages if m["role"] == "assistant"][:2] == ["1 messages", "3 messages"]
    assert silent.text == ""


def test_the_turn_limit_ends_an_episode() -> None:
    call = {"function": {"name": "add", "arguments": {"n": 2}}}
    (episode,) = play(Desk(), lambda messages: Message(role="assistant", content="", tool_calls=[call]))
    assert (episode.stop_reason, episode.reward) == (StopReason.MAX_TURNS, 16.0)


def test_text_of_an_enumeration_is_the_text_it_equals() -> None:
    word: Any = Enum("Word", {"USER": "user", "FRUIT": "fruit"}, type=str)

    class Named(Echo):
        def setup(self, task: object, ctx: Context) -> list[Message]:
            part: Any = {"type": "text", "text": word.FRUIT}
            return [Message(role=word.USER, content=word.FRUIT), Message(role="user", content=[part])]

    said: Any = play(Named(), ["1"])[0].messages
    assert f"{said[0]['role']} {said[0]['content']} {said[1]['content'][0]['text']}" == "user fruit fruit"


def test_an_agent_gets_a_turn_as_a_model_would_give_it() -> None:
    class Asks(AgentEnv):
        def tasks(self, split: str) -> list[Task]:
            return [Task("one")]

        async def play(self, task: Task, ctx: Context, model: Model) -> object:
            asked: list[Any] = [{"role": "user", "content": "Add."}]
            answer = await model.client.chat.completions.create(model=model.name, messages=asked, stop=["Result:"])
            return answer.choices[0].message.model_dump()

        @reward
        def one(self, ctx: Context) -> float:
            ((call,), text) = ctx.result["tool_calls"], ctx.result["content"]
            assert (ctx.turns[0].text, ctx.turns[0].message["tool_calls"][0]["id"]) == (text, call["id"])
            return float((call["function"]["arguments"], text) == ('{"n": 2}', "I add. "))

    call: Any = {"function": {"name": "add", "arguments": '{"n": 2}'}}
    turn = Message(role="assistant", content="I add. Result: 4", tool_calls=[call])
    assert play(Asks(), [turn])[0].reward == 1.0


def test_errors_are_raised_and_failing_rewards_say_why() -> None:
    class Failing(Echo):
        def setup(self, task: object, ctx: Context) -> list[Message]:
            raise FileNotFoundError("rows.jsonl")

    class Unsure(Echo):
        def right(self, ctx: Context) -> float:
            return 0.0

        right.__dict__.update(Echo.right.__dict__)

        def success(self, ctx: Context) -> bool:
            return ctx.text == "yes"

    with pytest.raises(EnvError, match=rf"Failing.setup raised FileNotFoundError: rows.jsonl \({Path(__file__).name}:"):
        play(Failing(), ["x"])
    yes, no = play(Unsure(), ["yes"], ["no"])
    assert yes.success is not None
    assert no.success is not None
    assert (yes.success.value, no.success.value) == (1.0, 0.0)


def called(call: object) -> Message:
    return Message(role="assistant", content="", tool_calls=[call])  # type: ignore[list-item]


def test_a_malformed_tool_call_in_the_history_is_rejected() -> None:
    class Past(Echo):
        def setup(self, task: Task, ctx: Context) -> list[Message]:
            return [called({"name": "add", "arguments": {}})]

    with pytest.raises(EnvError, match=r"Past\.setup returned a message with the tool call .*; write {'function'"):
        play(Past(), ["x"])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("0 is it", "write a list of turns, or a function of the messages so far, not '0 is it'"),
        (None, "write a list of turns, or a function of the messages so far, not None"),
        ([42], "play: a turn is text or an assistant message, not 42"),
        ([{"role": "user", "content": ""}], "a turn is text or an assistant message"),
        (lambda messages: None, r"the policy \(test_play.py:\d+\): a turn is text or an assistant message, not None"),
        ([called({"name": "add", "arguments": {}})], r"play: a turn has the tool call .*; write {'function': {'name'"),
        ([called("add")], "a turn has the tool call 'add'; write"),
        ([called({"function": {"name": "add"}})], "a turn has the tool call"),
        ([called({"function": {"name": 3, "arguments": {}}})], "a turn has the tool call"),
        (['<tool_call>{"name": "add"}</tool_call>'], "a turn that calls tools is a message: Message"),
    ],
)
def test_a_policy_that_cannot_be_played_is_rejected(policy: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        play(Desk(), policy)


@pytest.mark.parametrize("function", [lambda **choice: play(Echo(), ["1"], **choice), partial(rehearse, Echo(), ["1"])])
def test_a_task_is_chosen_by_a_split_of_a_run_and_a_whole_number(function: Any) -> None:
    for split in ("eval", None, 3):
        with pytest.raises(ConfigError, match=f"unknown split {split!r}. .*Known: test, train"):
            function(split=split)
    for index in ("t1", None, 1.5):
        with pytest.raises(ConfigError, match=f"index must be the position of a task, a whole number, got {index!r}"):
            function(index=index)


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_an_interrupt_that_a_reward_raises_itself_ends_it_at_once(error: type[BaseException]) -> None:
    class Interrupted(Echo):
        limits = Limits(score_timeout_s=2.0)

        @reward
        def broken(self, ctx: Context) -> float:
            raise error

    (episode,) = play(Interrupted(), ["0"])
    assert error.__name__ in (episode.signals[1].reason or "")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_an_agent_raises_itself_ends_its_episode_alone(error: type[BaseException]) -> None:
    class Interrupted(AgentEnv):
        def tasks(self, split: str) -> list[Task]:
            return [Task("one")]

        async def play(self, task: Task, ctx: Context, model: Model) -> None:
            raise error("mine")

        def score(self, ctx: Context) -> float:
            return 0.0

    for _ in range(2):
        assert f"{error.__name__}: mine" in rehearse(Interrupted(), ["0"]).error


def test_a_reply_may_be_done_by_a_bool_of_numpy() -> None:
    class Ends(Env):
        limits = Limits(max_turns=5)

        def tasks(self, split: str) -> list[Task]:
            return [Task("one")]

        def setup(self, task: Task, ctx: Context) -> list[Message]:
            return [Message(role="user", content="Say yes.")]

        def respond(self, turn: Turn, ctx: Context) -> Reply:
            return Reply(done=np.all(np.array([turn.text == "yes"])))

        def score(self, ctx: Context) -> float:
            return float(len(ctx.turns))

    [episode] = play(Ends(), ["no", "yes", "never said"])
    assert (episode.reward, episode.stop_reason) == (2.0, StopReason.ENV_DONE)

"""Agents that drive: contexts, retries, ends. The rules of every API are tested in tests/unit/endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from threading import Barrier
from typing import Any

import httpx
import pytest

from agentrl.algorithms.gigpo import anchors
from agentrl.engine.scripted import Delay, Die, Hang, Raise, ScriptedEngine
from agentrl.env import AgentEnv, Context, Env, GymnasiumEnv, Limits, Model, Signal, Task, Tasks, reward
from agentrl.env import play as episodes_of
from agentrl.env.driver.threads import THREADS
from agentrl.env.testing import check_environment
from agentrl.errors import ConfigError, EngineError
from agentrl.records.store import decode, encode
from agentrl.rollout.episode import EpisodeRunner
from agentrl.types import Message, StopReason
from tests.unit.rollout import templates
from tests.unit.rollout.agents import ADD, CALL, TOOLED, Client, Played, play, user
from tests.unit.rollout.cases import Chat, Listening, check_law_1, request, stage

# --- contexts -------------------------------------------------------------------------------------------------


async def tool_loop(client: Client) -> str:
    first = await client.ask(user("3 + 4?"), tools=[ADD])
    assert json.loads(first["tool_calls"][0]["function"]["arguments"]) == {"a": 3, "b": 4}
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "7"}
    last = await client.ask(user("3 + 4?"), first, result, tools=[ADD])
    return str(last["content"])


async def test_a_tool_loop_is_one_sequence_of_the_sampled_tokens() -> None:
    trajectory, heard = await play(tool_loop, [f"Let me add.\n{CALL}", "It is 7."])
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, trajectory.reward, len(trajectory.sequences)) == (2, 1.0, 1)
    check_law_1(trajectory, heard.calls)
    assert [m["role"] for m in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.is_trainable


async def test_a_rewritten_history_is_context_of_a_branch_of_its_own() -> None:
    async def rewriting(client: Client) -> None:
        first = await client.ask(user("one"))
        await client.ask(user("one"), {**first, "content": "something else"}, user("two"))

    trajectory, heard = await play(rewriting, ["four", "five"])
    assert [sum(sequence.mask) for sequence in trajectory.sequences] == [len(c.ids) for _, _, c in heard.calls]


def said(messages: Sequence[Message]) -> list[str]:
    return [str(message["content"]) for message in messages]


async def test_each_turn_has_the_conversation_that_the_policy_saw_then() -> None:
    """A reward model that scores turns, a judge and GiGPO read these."""

    async def counting(client: Client) -> None:
        history: list[dict[str, Any]] = []
        for left in (3, 2, 1):
            asked = [{"role": "system", "content": f"{left} steps left"}, *history, user(f"state {left}")]
            history += [user(f"state {left}"), await client.ask(*asked)]

    trajectory, _ = await play(counting, ["A", "B", "C"])
    assert len(trajectory.messages) == 3 + 5 + 7, "each call has a history of its own"
    conversations = [said(trajectory.conversation(turn)) for turn in range(3)]
    assert conversations[0] == ["3 steps left", "state 3", "A"]
    assert conversations[1] == ["2 steps left", "state 3", "A", "state 2", "B"]
    assert said(trajectory.last_conversation) == ["1 steps left", "state 3", "A", "state 2", "B", "state 1", "C"]
    seen = [said(trajectory.observation(turn)) for turn in range(3)]
    assert seen == [["3 steps left", "state 3"], ["state 2"], ["state 1"]]
    assert [anchor[-1] for anchor in anchors(trajectory)] == [("user", f"state {left}") for left in (3, 2, 1)]
    assert decode(encode(trajectory)).exchanges == trajectory.exchanges


async def test_branches_of_a_conversation_know_from_where_they_go_on() -> None:
    async def branching(client: Client) -> None:
        root = await client.ask(user("plan"))
        first = await client.ask(user("plan"), root, user("left"))
        await client.ask(user("plan"), root, user("right"))
        await client.ask(user("plan"), root, user("left"), first, user("on"))

    trajectory, _ = await play(branching, ["P", "L", "R", "E"])
    assert [exchange.parent for exchange in trajectory.exchanges] == [None, 0, 0, 1]
    assert said(trajectory.conversation(2)) == ["plan", "P", "right", "R"]
    assert said(trajectory.conversation(3)) == ["plan", "P", "left", "L", "on", "E"]


async def test_results_of_tools_in_a_rewritten_history_are_not_counted_again() -> None:
    async def rewriting(client: Client) -> None:
        call = await client.ask(user("3 + 4?"), tools=[ADD])
        result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "7"}
        second = await client.ask(user("3 + 4?"), call, result, tools=[ADD])
        await client.ask({"role": "system", "content": "short"}, user("3 + 4?"), call, result, second, user("sure?"))

    trajectory, _ = await play(rewriting, [CALL, "7", "yes"])
    assert [message["content"] for message in trajectory.tool_results] == ["7"]


async def test_parallel_calls_and_subagents_train_no_token_twice() -> None:
    async def crowd(client: Client) -> None:
        root = await client.ask(user("plan"))
        branches = [[user("plan"), root, user(f"part {n}")] for n in range(6)]
        replies = await asyncio.gather(*(client.ask(*branch) for branch in branches))
        await asyncio.gather(
            *(client.ask(*branch, reply, user("go on")) for branch, reply in zip(branches, replies, strict=True))
        )

    trajectory, heard = await play(crowd, ["four"])
    assert (trajectory.turns, len(trajectory.sequences)) == (13, 6)
    assert trajectory.action_tokens == sum(len(c.ids) for _, _, c in heard.calls)
    root = heard.calls[0][2].ids
    for sequence in trajectory.sequences:  # a branch has the sampled tokens of its root, not others for the same text
        ids = tuple(sequence.ids)
        assert any(ids[n : n + len(root)] == root for n in range(len(ids)))


async def test_agents_in_several_seats_have_contexts_and_rewards_of_their_own() -> None:
    class Seated(Played):
        def score(self, ctx: Context) -> list[Signal]:
            assert [turn.agent for turn in ctx.turns] == ["white", "black"]
            return [Signal("pay", 2.0, agent="white"), Signal("pay", -2.0, agent="black")]

    async def duel(client: Client) -> None:
        for name in ("white", "black"):
            await client.ask(user("move"), model=client.model.seat(name))

    trajectory, _ = await play(duel, base=Seated)
    assert [{s.agent for s in q.segments if s.is_action} for q in trajectory.sequences] == [{"white"}, {"black"}]
    assert [(s.agent, s.value, s.valid) for s in trajectory.signals] == [("white", 2.0, True), ("black", -2.0, True)]


async def test_a_reward_for_an_agent_that_never_spoke_is_invalid() -> None:
    class Absent(Played):
        def score(self, ctx: Context) -> Signal:
            return Signal("pay", 2.0, agent="red")

    trajectory, _ = await play(lambda c: c.ask(user("move")), base=Absent)
    assert trajectory.stop_reason is StopReason.VERIFIER_ERROR


# --- requests -------------------------------------------------------------------------------------------------


async def test_a_retry_joins_the_call_in_flight() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def until() -> None:
        started.set()
        await finish.wait()

    async def impatient(client: Client) -> None:
        body = {"messages": [user("hi")]}
        first = asyncio.ensure_future(client.post(body))
        await started.wait()
        again = asyncio.ensure_future(client.post(body, x_stainless_retry_count="1"))
        await asyncio.sleep(0)
        finish.set()
        assert (await first).json() == (await again).json()

    trajectory, heard = await play(impatient, [Delay(until, "four")])
    assert (len(heard.calls), trajectory.turns) == (1, 1)


async def test_an_answer_that_nobody_receives_is_not_trained() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def until() -> None:
        started.set()
        await finish.wait()

    async def leaving(client: Client) -> None:
        lost = asyncio.ensure_future(client.post({"messages": [user("hi")]}))
        await started.wait()
        lost.cancel()
        await asyncio.wait({lost})
        finish.set()
        await client.ask(user("hi"))

    trajectory, heard = await play(leaving, [Delay(until, "four"), "five"])
    assert len(heard.calls) == 2
    assert trajectory.turns == len(trajectory.sequences) == 1
    check_law_1(trajectory, heard.calls[1:])


# --- ends -----------------------------------------------------------------------------------------------------


async def test_an_agent_that_goes_on_after_a_refusal_ends_by_itself() -> None:
    async def resigned(client: Client) -> None:
        await client.ask(user("hi"))
        assert (await client.post({"messages": [user("hi " * 500)]})).status_code == 400

    trajectory, _ = await play(resigned, context=300)
    assert trajectory.stop_reason is StopReason.AGENT_DONE


async def test_calls_beyond_the_limit_of_turns_are_refused() -> None:
    async def endless(client: Client) -> None:
        while True:
            await client.ask(user("hi"))

    trajectory, heard = await play(endless, max_turns=3)
    assert (trajectory.stop_reason, trajectory.turns, len(heard.calls)) == (StopReason.MAX_TURNS, 3, 3)
    assert trajectory.is_valid


@pytest.mark.parametrize(
    ("changes", "context", "expected"),
    [({"max_tokens": 2}, 4000, StopReason.MAX_TOKENS), ({}, 40, StopReason.CONTEXT_OVERFLOW)],
)
async def test_an_answer_that_the_limits_cut_is_why_the_episode_ends(
    changes: dict[str, Any], context: int, expected: StopReason
) -> None:
    trajectory, _ = await play(lambda c: c.ask(user("hi")), ["four " * 60], context=context, **changes)
    assert trajectory.stop_reason is expected
    assert trajectory.is_valid


FAULTS: dict[str, tuple[Any, StopReason]] = {
    "dies": (Die(), StopReason.INFRA_ERROR),
    "fails": (Raise(EngineError("no")), StopReason.MODEL_ERROR),
    "hangs": (Hang(), StopReason.INFRA_ERROR),
}


@pytest.mark.parametrize(("fault", "expected"), FAULTS.values(), ids=FAULTS)
async def test_a_failing_engine_is_never_the_agents_fault_and_never_worth_0(fault: Any, expected: StopReason) -> None:
    async def stubborn(client: Client) -> str:
        while (await client.post({"messages": [user("hi")]})).status_code != 200:
            pass
        return "fine"

    trajectory, _ = await play(stubborn, [fault], turn_timeout_s=0.3)
    assert trajectory.stop_reason is expected
    assert not trajectory.is_valid
    assert not trajectory.signals


async def test_an_agent_that_raises_is_an_error_of_the_environment() -> None:
    async def broken(client: Client) -> None:
        await client.ask(user("hi"))
        raise KeyError("mine")

    trajectory, _ = await play(broken)
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "KeyError: 'mine'" in trajectory.error
    assert "test_agent.py" in trajectory.traceback


async def test_a_hanging_agent_ends_at_the_deadline_and_leaves_no_call() -> None:
    async def hanging(client: Client) -> None:
        await asyncio.gather(client.ask(user("hi")), asyncio.Event().wait())

    trajectory, _ = await play(hanging, [Hang()], episode_timeout_s=0.5)
    assert trajectory.stop_reason is StopReason.DEADLINE
    assert not [task for task in asyncio.all_tasks() if "_sample" in repr(task)]


async def test_an_agent_that_never_asks_is_told_and_not_trained() -> None:
    async def silent(client: Client) -> None:
        pass

    trajectory, _ = await play(silent)
    assert "without a call to the model" in trajectory.error
    assert not trajectory.is_trainable
    assert trajectory.is_unanswered


class Blocking(AgentEnv):
    """Whose agent blocks a thread."""

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(100)]

    def play(self, task: Task, ctx: Context, model: Model) -> object:
        body = {"model": model.name, "messages": [user("hi")]}
        headers = {"x-api-key": model.api_key}
        return httpx.post(f"{model.base_url}/chat/completions", json=body, headers=headers, timeout=20).json()["usage"]

    @reward
    def good(self, ctx: Context) -> float:
        assert ctx.text == "four"
        return float(ctx.result["completion_tokens"])

    @reward(scope="turn", weight=0.5)
    def early(self, ctx: Context) -> float:
        return 1.0 / len(ctx.turns)


async def test_an_agent_may_block_and_its_turns_are_scored() -> None:
    trajectory, heard = await play(None, base=Blocking)  # type: ignore[arg-type]
    assert trajectory.error == ""
    assert [(s.name, s.value, s.turn) for s in trajectory.signals] == [
        ("early", 1.0, 0),
        ("good", float(len(heard.calls[0][2].ids)), None),
    ]


@pytest.mark.parametrize("is_async", [False, True])
async def test_agents_of_many_episodes_may_block_although_their_rewards_need_threads(is_async: bool) -> None:
    """Agents that would hold all threads of plain code wait for answers, whose turns are scored by plain code."""
    together = Barrier(THREADS.size)

    class Crowd(Blocking):
        def play(self, task: Task, ctx: Context, model: Model) -> object:
            together.wait(30)
            return asyncio.run(asked(model)) if is_async else super().play(task, ctx, model)

    async def asked(model: Model) -> object:
        async with httpx.AsyncClient(timeout=20) as http:
            response = await Client(http, model).post({"messages": [user("hi")]})
        return response.json()["usage"]

    engine = await ScriptedEngine.ready(
        ["four"], encode=lambda text: templates.encode(TOOLED, text), vocab_size=len(TOOLED), max_model_len=4000
    )
    runtime = stage(Listening(engine), Crowd, 4000, TOOLED)
    requests = (request(number, max_tokens=200, episode_timeout_s=10.0) for number in range(THREADS.size))
    trajectories = await asyncio.gather(*(EpisodeRunner(one, runtime).run() for one in requests))
    await runtime.endpoint.close()
    assert {(one.error, len(one.signals)) for one in trajectories} == {("", 2)}


async def test_the_openai_client_of_the_episode_works() -> None:
    class Sdk(Played):
        async def play(self, task: Task, ctx: Context, model: Model) -> object:
            answer = await model.client.chat.completions.create(model=model.name, messages=[user("hi")])  # type: ignore[list-item]
            assert answer.usage is not None
            return answer.choices[0].message.content

        @reward
        def good(self, ctx: Context) -> float:
            return float(ctx.result == "four")

    trajectory, _ = await play(None, base=Sdk)  # type: ignore[arg-type]
    assert (trajectory.error, trajectory.reward) == ("", 1.0)


# --- definitions ----------------------------------------------------------------------------------------------


def test_an_agent_env_has_no_hooks_of_the_step_mode() -> None:
    with pytest.raises(ConfigError, match="setup is never called on an AgentEnv"):

        class Mixed(Played):
            def setup(self, task: Task, ctx: Context) -> list[Message]:
                return []

    with pytest.raises(ConfigError, match=r"play is called as play\(task, ctx, model\)"):

        class Short(Played):
            def play(self, task: Task) -> object:  # type: ignore[override]
                return None


def test_play_is_an_ordinary_name_in_other_environments() -> None:
    class Player(Chat):
        def play(self) -> None:
            """Nothing of agentrl's."""

    assert issubclass(Player, Env)
    assert Limits().max_turns == 1


# --- without a model ------------------------------------------------------------------------------------------


class Adder(AgentEnv):
    """Whose agent offers a tool and asks until there is an answer without a call."""

    blocking = False

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(10)]

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        messages = [user(f"{task.data} + 4?")]
        async with httpx.AsyncClient(timeout=300, verify=False) as http:
            client = Client(http, model)
            while calls := (reply := await client.ask(*messages, tools=[ADD])).get("tool_calls"):
                given = json.loads(calls[0]["function"]["arguments"])
                messages += [
                    reply,
                    {"role": "tool", "tool_call_id": calls[0]["id"], "content": str(sum(given.values()))},
                ]
        return reply["content"]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.result == str(ctx.task.data + 4))

    def oracle(self, task: Task) -> list[Message | str]:
        add = {"name": "add", "arguments": {"a": task.data, "b": 4}}
        calling: Any = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": add}],
        }
        return [calling, str(task.data + 4)]


def test_an_agent_env_can_be_played_turn_by_turn() -> None:
    right, wrong = episodes_of(Adder(), Adder().oracle(Task("", 3)), ["9"], index=3)
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.stop_reason is StopReason.AGENT_DONE
    assert [message["role"] for message in right.messages] == ["user", "assistant", "tool", "assistant"]


def test_an_agent_env_is_a_gymnasium_environment() -> None:
    env = GymnasiumEnv(Adder())
    start, info = env.reset(options={"index": 3})
    assert start == [{"role": "user", "content": "3 + 4?"}]
    assert [tool["name"] for tool in info["tools"]] == ["add"]
    observation, _, done, cut, _ = env.step(Adder().oracle(Task("", 3))[0])
    assert [(m["role"], m["content"]) for m in observation] == [("tool", "7")]
    assert not done
    assert not cut
    assert env.step("7")[1:4] == (1.0, True, False)
    env.close()


def test_an_agent_env_passes_the_checks_of_the_testing_kit() -> None:
    check_environment(Adder)

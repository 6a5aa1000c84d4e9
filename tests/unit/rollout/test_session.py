"""What an agent leaves in flight, repeats or cancels: each token that it saw is recorded and paid, and none later."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

import httpx
import pytest
import re2

from agentrl.endpoint import Ask, shown
from agentrl.engine.scripted import Delay, ScriptedEngine
from agentrl.env import Context, Model, reward
from agentrl.rollout import session
from agentrl.rollout.episode import EpisodeRunner
from agentrl.rollout.model_renderers import TemplateRenderer
from agentrl.serving import RequestError
from agentrl.types import Completion, Message, StopReason, TokenIds, ToolSpec, Trajectory, text_of
from tests.unit.rollout.agents import ADD, CALL, TOOLED, Client, Played, play, user
from tests.unit.rollout.cases import Listening, check_law_1, request, stage
from tests.unit.rollout.templates import encode

LARGE = {"type": "function", "id": "a", "function": {"name": "add", "arguments": json.dumps({"a": "y" * 10_000_000})}}


class Slow(Played):
    """Each turn is worth 1; scoring the one at `held` begins, and waits until it is released."""

    held: ClassVar[int]
    scoring: ClassVar[asyncio.Event]
    release: ClassVar[asyncio.Event]

    @reward(scope="turn")
    async def turn(self, ctx: Context) -> float:
        if len(ctx.turns) == self.held + 1:
            self.scoring.set()
            await self.release.wait()
        return 1.0


def slow(held: int) -> type[Slow]:
    return type("SlowAt", (Slow,), {"held": held, "scoring": asyncio.Event(), "release": asyncio.Event()})


async def over_http(client: Client) -> None:
    await client.ask(user("two"))


async def by_ask(client: Client) -> None:
    await client.model.ask("two")


async def by_client(client: Client) -> None:
    await client.model.client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "two"}])


async def by_stream(client: Client) -> None:
    messages: list[Any] = [{"role": "user", "content": "two"}]
    chunks = await client.model.client.chat.completions.create(model="policy", messages=messages, stream=True)
    assert [chunk async for chunk in chunks]


async def by_tokens(client: Client) -> None:
    await client.model.tokens.generate([5, 6])


@pytest.mark.parametrize("ask", [by_ask, by_client, by_stream, by_tokens])
async def test_an_agent_may_call_from_a_loop_of_its_own(ask: Callable[[Client], Awaitable[None]]) -> None:
    async def agent(client: Client) -> None:
        for _ in range(3):
            await asyncio.to_thread(asyncio.run, cast("Any", ask(client)))
            await ask(client)  # what the other loop left does not break this one

    if ask in (by_client, by_stream):
        pytest.importorskip("openai")
    trajectory, heard = await play(agent, ["four", "five", "six"] * 2)
    check_law_1(trajectory, heard.calls)
    assert (trajectory.error, trajectory.turns) == ("", 6)


@pytest.mark.parametrize(
    ("messages", "says"),
    [([], "messages is empty"), ([{"role": "bogus", "content": "a"}], "unknown role 'bogus'"), ([{}], "unknown role"),
     ([user("a"), "b"], r"messages\[1\] is no message"),
     ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}], "takes text")],
)  # fmt: skip
async def test_what_is_no_conversation_is_refused_by_ask(messages: list[Any], says: str) -> None:
    async def agent(client: Client) -> None:
        with pytest.raises(RequestError, match=says):
            await client.model.ask(messages)
        await client.model.ask("two")

    trajectory, _ = await play(agent, ["four"])
    assert (trajectory.error, trajectory.turns) == ("", 1)


@pytest.mark.parametrize("ask", [over_http, by_ask])
async def test_a_turn_that_is_being_scored_when_play_returns_is_paid(ask: Callable[[Client], Awaitable[None]]) -> None:
    base, asking = slow(1), list[asyncio.Future[None]]()

    async def agent(client: Client) -> None:
        await client.model.ask("one")
        asking.append(asyncio.ensure_future(ask(client)))
        await base.scoring.wait()
        asyncio.get_running_loop().call_later(0.05, base.release.set)

    trajectory, heard = await play(agent, ["four", "five"], base=base)
    check_law_1(trajectory, heard.calls)
    assert (trajectory.turns, trajectory.is_valid, trajectory.reward) == (2, True, 3.0)
    await asyncio.gather(*asking, return_exceptions=True)


async def test_a_call_that_is_cancelled_while_its_turn_is_scored_keeps_the_reward() -> None:
    base = slow(0)

    async def agent(client: Client) -> None:
        asking = asyncio.ensure_future(client.model.ask("one"))
        await base.scoring.wait()
        asking.cancel()
        await asyncio.wait({asking})
        asyncio.get_running_loop().call_soon(base.release.set)
        await client.model.ask("two")

    trajectory, heard = await play(agent, ["four", "five"], base=base)
    check_law_1(trajectory, heard.calls)
    assert [(one.name, one.turn) for one in trajectory.signals] == [("turn", 0), ("turn", 1), ("good", None)]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_completion_that_does_not_fit_makes_the_episode_invalid(number: int) -> None:
    class Faulty:
        calls = 0

        async def generate(self, *words: Any) -> Completion:
            self.calls += 1
            completion = await engine.generate(*words)
            return replace(completion, logprobs=completion.logprobs[:-1]) if self.calls == number else completion

    class Own(Played):
        async def play(self, task: object, ctx: Context, model: Model) -> object:
            for _ in range(3):
                await model.client.chat.completions.create(
                    model=model.name, messages=[{"role": "user", "content": "Hi"}]
                )
            return None

    engine = await ScriptedEngine.ready(
        ["four"], encode=lambda text: encode(TOOLED, text), vocab_size=len(TOOLED), max_model_len=4000
    )
    runtime = stage(Listening(Faulty()), Own, 4000, TOOLED)
    try:
        trajectory = await EpisodeRunner(request(max_tokens=200), runtime).run()
    finally:
        await runtime.endpoint.close()
    assert trajectory.stop_reason is StopReason.MODEL_ERROR
    assert not trajectory.is_trainable


async def test_a_limit_that_the_agent_has_survived_excuses_no_later_failure() -> None:
    async def agent(client: Client) -> None:
        assert (await client.post({"messages": [user("long " * 400)]})).status_code == 400
        await client.ask(user("short"))
        raise ConnectionError("my database is down")

    trajectory, _ = await play(agent, context=300)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)


class CutError(Exception):
    """What a client raises that takes only whole answers."""


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_tokens": 3}, StopReason.MAX_TOKENS),
        ({"max_tokens": 100, "context": 64}, StopReason.CONTEXT_OVERFLOW),
    ],
)
async def test_an_answer_that_was_cut_excuses_the_error_that_it_causes(
    limits: dict[str, int], reason: StopReason
) -> None:
    async def agent(client: Client) -> None:
        await client.ask(user("Hi"))
        raise CutError

    trajectory, heard = await play(agent, ["a long answer " * 20], **limits)
    assert (trajectory.stop_reason, trajectory.is_scored, len(trajectory.signals)) == (reason, True, 1)
    assert "CutError" in trajectory.error
    check_law_1(trajectory, heard.calls)


async def test_a_limit_of_the_agents_own_excuses_no_failure() -> None:
    async def agent(client: Client) -> None:
        await client.ask(user("yes or no?"), max_tokens=1)
        raise ConnectionError("my database is down")

    trajectory, _ = await play(agent, ["a long answer"], max_tokens=100)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)


async def test_an_answer_that_was_cut_and_not_read_excuses_no_failure() -> None:
    base = slow(1)

    async def agent(client: Client) -> None:
        await client.ask(user("Hi"))
        late = asyncio.create_task(client.model.ask("Go on."))
        late.add_done_callback(lambda task: task.exception())
        await base.scoring.wait()
        asyncio.get_running_loop().call_later(0.2, base.release.set)  # once the agent has ended
        assert not late.done()
        raise ConnectionError("my database is down")

    trajectory, _ = await play(agent, ["so", "a long answer " * 20], base=base, max_tokens=30)
    assert (trajectory.turns, trajectory.stop_reason) == (2, StopReason.ENV_ERROR)


async def test_an_answer_that_was_cut_excuses_no_failure_after_a_whole_one() -> None:
    async def agent(client: Client) -> None:
        await client.ask(user("Hi"))
        await client.ask(user("Hi again"))
        raise ConnectionError("my database is down")

    trajectory, _ = await play(agent, ["a long answer", "so"], max_tokens=4)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)


async def test_tokens_that_are_counted_excuse_no_failure() -> None:
    async def agent(client: Client) -> None:
        body = {"model": "policy", "messages": [user("long " * 100_000)]}
        keys = {"authorization": f"Bearer {client.model.api_key}"}
        counted = await client.http.post(f"{client.model.base_url}/messages/count_tokens", json=body, headers=keys)
        assert counted.status_code == 400
        raise ConnectionError("my database is down")

    trajectory, _ = await play(agent, context=300)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)


@pytest.mark.parametrize("kept", [("tool_calls", "reasoning_content"), ("tool_calls",), ("reasoning_content",), ()])
async def test_equal_answers_are_continued_each_with_its_own_tokens(kept: Sequence[str]) -> None:
    def sent(message: dict[str, Any]) -> dict[str, Any]:
        calls = [call if "tool_calls" in kept else {**call, "id": "mine"} for call in message["tool_calls"]]
        thought = {"reasoning_content": message["reasoning_content"]} if "reasoning_content" in kept else {}
        return {"role": "assistant", "content": message["content"], "tool_calls": calls, **thought}

    async def agent(client: Client) -> None:
        asked = [await client.ask(user("sum"), tools=[ADD]) for _ in range(3)]
        # Where nothing tells them apart, the first is continued first.
        for message in map(sent, asked[::-1] if kept else asked):
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "7"}
            await client.ask(user("sum"), message, result, tools=[ADD])

    ends = ["end 2", "end 1", "end 0"] if kept else ["end 0", "end 1", "end 2"]
    trajectory, _ = await play(agent, [f"<think>plan {n}</think>{CALL}" for n in range(3)] + ends)
    texts = [TOOLED.decode(sequence.ids) for sequence in trajectory.sequences]
    assert [(text.count("plan"), f"plan {n}" in text, f"end {n}" in text) for n, text in enumerate(texts)] == [
        (1, True, True)
    ] * 3


async def test_a_long_prompt_is_rendered_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    first = TemplateRenderer.first

    def noting(renderer: TemplateRenderer, *given: Any) -> TokenIds:
        threads.append(threading.get_ident())
        return first(renderer, *given)

    monkeypatch.setattr(TemplateRenderer, "first", noting)
    monkeypatch.setattr(session, "LONG", 1000)

    async def agent(client: Client) -> None:
        calls = [
            {"type": "function", "id": "a", "function": {"name": "add", "arguments": json.dumps({"a": "7" * 999})}}
        ]
        for messages in ([user("a")], [user("a" * 999)], [user("a"), {"role": "assistant", "tool_calls": calls}]):
            await client.ask(*messages)

    await play(agent, ["four", "five", "six"])
    assert [thread == threading.get_ident() for thread in threads] == [True, False, False]


async def test_nothing_is_sampled_or_recorded_after_play_has_returned() -> None:
    left: list[Client] = []

    async def agent(client: Client) -> None:
        await client.model.ask("one")
        left.append(client)

    class Counting(Played):
        @reward
        async def good(self, ctx: Context) -> float:
            [client] = left
            for late in (client.model.ask("two"), client.model.tokens.generate([5, 6])):
                with pytest.raises(RequestError, match="this episode has ended"):
                    await late
            return float(len(ctx.turns))

    trajectory, heard = await play(agent, base=Counting)
    assert (len(heard.calls), trajectory.turns, trajectory.reward) == (1, 1, 1.0)


@pytest.mark.parametrize("ahead", [b"", b"\r\n", b"POST /v1/chat"])
async def test_a_client_that_closed_its_connection_gets_no_answer_that_is_not_recorded(ahead: bytes) -> None:
    async def agent(client: Client) -> bytes:
        await client.model.ask("one")
        where = urlsplit(client.model.base_url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        body = json.dumps({"model": "policy", "messages": [user("two")]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.model.api_key}\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body + ahead)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    class Telling(Played):
        @reward
        def good(self, ctx: Context) -> float:
            return float(b"five" in ctx.result) - float(b"closed its side" in ctx.result)

    trajectory, _ = await play(agent, ["four", "five"], base=Telling)
    assert (trajectory.turns, trajectory.reward) == (1, -1.0)


async def by_tokens(client: Client) -> None:
    await client.model.tokens.generate([5, 6])


@pytest.mark.parametrize("ask", [over_http, by_ask, by_tokens], ids=["http", "ask", "tokens"])
async def test_an_answer_that_is_given_up_while_another_turn_is_scored_is_not_recorded(
    ask: Callable[[Client], Awaitable[None]],
) -> None:
    base, sampled = slow(0), asyncio.Event()

    async def agent(client: Client) -> None:
        first = asyncio.ensure_future(client.ask(user("one")))
        await base.scoring.wait()
        second = asyncio.ensure_future(ask(client))
        await sampled.wait()
        await asyncio.sleep(0.05)  # nobody announces an answer that waits
        second.cancel()
        await asyncio.wait({second})
        await asyncio.sleep(0.05)  # nor a connection that has closed
        base.release.set()
        await first

    async def note() -> None:
        sampled.set()

    trajectory, _ = await play(agent, ["four", Delay(note, "five")], base=base)
    assert (trajectory.turns, len(trajectory.sequences)) == (1, 1)


async def test_a_retry_gets_its_own_answer_though_its_client_left_while_the_turn_was_scored() -> None:
    base, asked, released = slow(0), asyncio.Event(), asyncio.Event()
    answers: list[str] = []

    async def agent(client: Client) -> None:
        body = {"messages": [user("same")]}
        first = asyncio.ensure_future(client.post(body))
        await base.scoring.wait()
        other = asyncio.ensure_future(client.post(body))
        await asked.wait()
        first.cancel()
        await asyncio.wait({first})
        again = asyncio.ensure_future(client.post(body, x_stainless_retry_count="1"))
        base.release.set()
        asyncio.get_running_loop().call_later(0.05, released.set)
        found = await asyncio.gather(again, other)
        answers.extend(one.json()["choices"][0]["message"]["content"] for one in found)

    async def wait() -> None:
        asked.set()
        await released.wait()

    trajectory, heard = await play(agent, ["four", Delay(wait, "five"), "six"], base=base)
    assert answers == ["four", "five"]
    check_law_1(trajectory, heard.calls)


async def test_a_retry_gets_an_answer_that_no_other_client_gets() -> None:
    released = asyncio.Event()
    answers: list[str] = []

    async def agent(client: Client) -> None:
        body = {"messages": [user("same")]}
        first = asyncio.ensure_future(client.post(body))
        second = asyncio.ensure_future(client.post(body))
        while len(heard_prompts) < 2:  # noqa: ASYNC110  (nobody announces a call)
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait({first})
        again = asyncio.ensure_future(client.post(body, x_stainless_retry_count="1"))
        await asyncio.sleep(0.05)
        released.set()
        found = await asyncio.gather(again, second)
        answers.extend(one.json()["choices"][0]["message"]["content"] for one in found)

    heard_prompts: list[int] = []

    async def wait() -> None:
        heard_prompts.append(1)
        await released.wait()

    trajectory, heard = await play(agent, [Delay(wait, "four"), Delay(wait, "five")])
    assert sorted(answers) == ["five", "four"]
    check_law_1(trajectory, heard.calls)
    assert trajectory.turns == 2


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("f", "str", '{"name": "f", "arguments": "str"}'),
        ("f", [1], '{"name": "f", "arguments": [1]}'),
        ("", "{br", "{br"),
    ],
)
def test_a_call_that_no_client_can_read_is_its_text(name: str, arguments: Any, text: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}
    parsed = Message(role="assistant", content="I call", tool_calls=[call])
    assert shown(parsed, ()) == ({"role": "assistant", "content": f"I call\n<tool_call>{text}</tool_call>"}, "")


async def test_text_that_cannot_fit_is_refused_before_it_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    first = TemplateRenderer.first

    def noted(self: TemplateRenderer, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        rendered.append(text_of(messages[-1]))
        return first(self, messages, tools)

    monkeypatch.setattr(TemplateRenderer, "first", noted)

    async def agent(client: Client) -> None:
        answer = await client.post({"messages": [user("x" * 20_000_000)]})
        assert answer.status_code == 400
        assert "maximum context length" in answer.text
        assert "not 20000000 characters" in answer.text
        await client.ask(user("one"))

    trajectory, heard = await play(agent)
    assert (trajectory.turns, len(heard.calls), rendered) == (1, 1, ["one"])


@pytest.mark.parametrize("messages", [[user("")] * 4001, [{"role": "assistant", "tool_calls": [LARGE]}, user("one")]])
async def test_a_conversation_that_cannot_fit_is_refused_before_it_is_compared(messages: list[Any]) -> None:
    compared: list[Ask] = []

    async def agent(client: Client) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "keys_of", lambda ask: compared.append(ask) or iter(()))
            answer = await client.post({"messages": messages})
        assert (answer.status_code, "maximum context length" in answer.text) == (400, True)
        await client.ask(user("one"))

    trajectory, _ = await play(agent)
    assert (trajectory.turns, compared) == (1, [])


async def test_long_prompts_need_none_of_the_threads_that_agents_hold() -> None:
    released, played = threading.Event(), asyncio.Event()

    async def agent(client: Client) -> None:
        loop = asyncio.get_running_loop()
        held = [loop.run_in_executor(None, released.wait) for _ in range(min(32, (os.cpu_count() or 1) + 4))]
        try:
            await asyncio.wait_for(client.ask(user("word " * 30_000)), 30)
            played.set()
        finally:
            released.set()
            await asyncio.gather(*held)

    trajectory, _ = await play(agent, context=200_000)
    assert (played.is_set(), trajectory.error) == (True, "")


@pytest.mark.parametrize("keeps_reasoning", [True, False])
async def test_calls_that_a_client_can_read_tell_equal_answers_apart(keeps_reasoning: bool) -> None:
    async def agent(client: Client) -> None:
        asked = [await client.ask(user("sum"), tools=[ADD]) for _ in range(3)]
        for answer in reversed(asked):
            sent = {key: value for key, value in answer.items() if key != "reasoning_content" or keeps_reasoning}
            result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "7"}
            await client.ask(user("sum"), sent, result, tools=[ADD])

    sampled = [f"<think>plan {n}</think>{CALL}<tool_call>{{broken</tool_call>" for n in range(3)]
    trajectory, _ = await play(agent, [*sampled, "end 2", "end 1", "end 0"])
    assert ends(trajectory) == [("plan 0", "end 0"), ("plan 1", "end 1"), ("plan 2", "end 2")]


async def test_each_of_several_equal_answers_is_continued_though_their_client_sends_only_their_text() -> None:
    async def agent(client: Client) -> None:
        asked = [await client.ask(user("sum")) for _ in range(3)]
        texts = [{"role": "assistant", "content": answer["content"]} for answer in asked]
        await asyncio.gather(*(client.ask(user("sum"), text, user("sure?")) for text in texts))

    sampled = [f"<think>plan {n}</think>seven" for n in range(3)]
    trajectory, _ = await play(agent, [*sampled, "end 0", "end 1", "end 2"])
    assert ends(trajectory) == [("plan 0", "end 0"), ("plan 1", "end 1"), ("plan 2", "end 2")]


async def test_of_answers_that_differ_in_white_space_the_one_that_is_sent_back_is_continued() -> None:
    async def agent(client: Client) -> None:
        asked = [await client.ask(user("sum")) for _ in range(2)]
        for answer in reversed(asked):
            await client.ask(user("sum"), answer, user("sure?"))

    trajectory, _ = await play(agent, ["seven", "seven\n\n", "end 1", "end 0"])
    assert ["seven\n\n" in TOOLED.decode(one.ids) for one in trajectory.sequences] == [False, True]
    assert ["end 1" in TOOLED.decode(one.ids) for one in trajectory.sequences] == [False, True]


def ends(trajectory: Trajectory) -> list[tuple[str, ...]]:
    """The plans and ends in each sequence."""
    texts = [TOOLED.decode(sequence.ids) for sequence in trajectory.sequences]
    return [tuple(re2.findall("(?:plan|end) [0-9]", text)) for text in texts]


async def test_the_error_of_a_refused_call_ends_the_episode_as_its_limit_after_other_calls_too() -> None:
    async def agent(client: Client) -> None:
        [found] = await asyncio.gather(client.model.ask("long " * 400), return_exceptions=True)
        await client.ask(user("short"))
        assert isinstance(found, RequestError)
        raise RuntimeError("a subagent failed") from found

    trajectory, _ = await play(agent, context=300)
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.CONTEXT_OVERFLOW, 1)


async def test_another_error_after_a_call_that_succeeded_is_the_agents_own() -> None:
    async def agent(client: Client) -> None:
        await asyncio.gather(client.ask(user("long " * 400)), return_exceptions=True)
        await client.ask(user("short"))
        raise RuntimeError("a mistake")

    trajectory, _ = await play(agent, context=300)
    assert trajectory.stop_reason is StopReason.ENV_ERROR


@pytest.mark.parametrize(("limit", "reason"), [(150, StopReason.CONTEXT_OVERFLOW), (5, StopReason.AGENT_DONE)])
async def test_an_answer_that_the_context_cuts_is_cut_by_it_though_the_agent_asked_for_fewer_tokens_than_the_run(
    limit: int, reason: StopReason
) -> None:
    async def agent(client: Client) -> None:
        await client.ask(user("hi"), max_tokens=limit)

    trajectory, _ = await play(agent, ["four " * 60], context=40)
    assert trajectory.stop_reason is reason


async def test_a_repetition_by_the_shared_client_is_of_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second draft does not reach the endpoint at first; its repetition is not taken for one of the first draft."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.0)
    drafts: list[str | None] = []

    async def agent(client: Client) -> None:
        model = client.model.client
        send, broken = model._client.send, iter([False, True])

        async def sometimes(request: httpx.Request, **options: Any) -> httpx.Response:
            if next(broken, False):
                raise httpx.ConnectError("the connection broke")
            return await send(request, **options)

        monkeypatch.setattr(model._client, "send", sometimes)
        for _ in range(2):
            answer = await model.chat.completions.create(
                model="policy", messages=[{"role": "user", "content": "draft"}]
            )
            drafts.append(answer.choices[0].message.content)

    trajectory, _ = await play(agent, ["four", "five"])
    assert (drafts, trajectory.turns) == (["four", "five"], 2)


def test_a_stop_string_cuts_calls_that_no_client_can_read() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "", "arguments": '{"name": "add", STOP'}}
    parsed = Message(role="assistant", content="I call", tool_calls=[call])
    message, stopped_by = shown(parsed, ("STOP",))
    assert (message, stopped_by) == ({"role": "assistant", "content": 'I call\n<tool_call>{"name": "add", '}, "STOP")


async def test_tokens_are_asked_for_at_least_one_at_a_time() -> None:
    async def agent(client: Client) -> None:
        for fault in ({"ids": [5, 6.5]}, {"ids": [True]}, {"ids": [5], "max_tokens": 16.0}, {"ids": [5], "stop": [""]},
                      {"ids": [5], "stop": [5]}, {"ids": [5], "stop": "ab"}):  # fmt: skip
            with pytest.raises(RequestError, match=r"6\.5|True|16\.0|stop is"):
                await client.model.tokens.generate(**fault)
        with pytest.raises(RequestError, match="max_tokens is 0"):
            await client.model.tokens.generate([5], max_tokens=0)
        for ids, why in (
            ([], "no ids"),
            ([10**9], "the id 1000000000: the tokenizer has ids from 0 to"),
            ([-1], "id -1"),
        ):
            with pytest.raises(RequestError, match=why):
                await client.model.tokens.generate(ids)
        await client.model.ask("one")

    trajectory, heard = await play(agent)
    assert (trajectory.turns, len(heard.calls)) == (1, 1)

"""What only the API of Anthropic has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.endpoint.speakers import Anthropic, Caller, user
from tests.unit.endpoint.test_apis import SCRIPT, play

MESSAGES = Anthropic()


async def answers(*bodies: dict[str, Any], script: Any = ("four",), **changes: Any) -> list[dict[str, Any]]:
    """The responses to requests, each of which says "hi"."""
    given: list[dict[str, Any]] = []

    async def asking(caller: Caller) -> None:
        await caller.ask(user("hi"))
        given.extend([(await caller.post(MESSAGES.body([user("hi")]) | body)).json() for body in bodies])

    await play(MESSAGES, asking, script, **changes)
    return given


@pytest.mark.parametrize(
    ("said", "options", "reason", "stop"),
    [
        ("four", {}, "end_turn", None),
        (SCRIPT[0], {}, "tool_use", None),
        ("four five", {"max_tokens": 2}, "max_tokens", None),
        ("a b c", {"stop_sequences": ["c", "b"]}, "stop_sequence", "b"),
    ],
)
async def test_stop_reason_says_why_a_message_ends(said: str, options: dict[str, Any], reason: str, stop: Any) -> None:
    (answer,) = await answers(options, script=["first", said])
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, stop)


async def test_a_thought_is_a_block_of_its_own() -> None:
    (answer,) = await answers({}, script=["first", "<think>\nhm\n</think>\n\nfour"])
    assert [(block["type"], block.get("text"), block.get("thinking")) for block in answer["content"]] == [
        ("thinking", None, "hm"),
        ("text", "four", None),
    ]


async def test_thoughts_are_signed_because_clients_drop_those_that_are_not() -> None:
    (answer,) = await answers({}, script=["first", "<think>\nhm\n</think>\n\nfour"])
    assert answer["content"][0]["signature"]


async def test_a_path_that_is_unknown_has_an_error_of_this_api() -> None:
    async def asking(caller: Caller) -> None:
        keys = {"x-api-key": caller.model.api_key}
        response = await caller.http.post(f"{caller.root}/v1/messages/batches", json={}, headers=keys)
        assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
        await caller.ask(user("hi"))

    trajectory, _ = await play(MESSAGES, asking)
    assert trajectory.error == ""


async def test_thoughts_of_a_conversation_are_the_reasoning_of_their_message() -> None:
    thoughts = [{"type": "thinking", "thinking": text} for text in ("h", None, "m")]

    async def asking(caller: Caller) -> None:
        said = [
            {"role": "assistant", "content": [*which, {"type": "text", "text": "4"}]}
            for which in (thoughts, thoughts[1:2])
        ]
        hi = {"role": "user", "content": "hi"}
        await caller.post({"messages": [hi, said[0], hi, said[1], hi]})

    trajectory, _ = await play(MESSAGES, asking)
    assert [m.get("reasoning_content") for m in trajectory.messages] == [None, "hm", None, None, None, None]


async def test_a_tool_whose_type_is_null_is_the_agents_own() -> None:
    tool = MESSAGES.body([])["tools"][0]
    given = await answers(*({"tools": [{**tool, **kind}]} for kind in ({}, {"type": None}, {"type": "custom"})))
    assert [answer["type"] for answer in given] == ["message"] * 3
    (refused,) = await answers({"tools": [{**tool, "type": "web_search"}]})
    assert refused["type"] == "error"


async def test_results_of_tools_come_before_the_text_of_their_message() -> None:
    results = [{"type": "tool_result", "tool_use_id": "c", "content": "7"}, {"type": "tool_result", "tool_use_id": "d"}]

    async def asking(caller: Caller) -> None:
        said = {"role": "user", "content": [{"type": "text", "text": "and?"}, *results]}
        call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {}}]}
        await caller.post({"messages": [{"role": "user", "content": "hi"}, call, said], "system": "You add."})

    trajectory, _ = await play(MESSAGES, asking)
    assert [(message["role"], message["content"]) for message in trajectory.messages] == [
        ("system", "You add."), ("user", "hi"), ("assistant", ""), ("tool", "7"), ("tool", ""), ("user", "and?"),
        ("assistant", "four"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (5, "messages[0] has a part of type 'int': this endpoint takes text"),
        (0, "messages[0] has a part of type 'int': this endpoint takes text"),
        ({}, "messages[0] has a part of type None: this endpoint takes text"),
        ([{"type": "text", "text": 5}], "messages[0] has a part of type 'text' whose text is no string"),
    ],
)
async def test_content_of_another_type_is_refused_by_its_type(content: Any, why: str) -> None:
    (answer,) = await answers({"messages": [{"role": "user", "content": content}]})
    assert answer["error"]["message"] == why


async def test_errors_have_the_types_of_the_api() -> None:
    prefilled = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}]}
    long = {"messages": [{"role": "user", "content": "hi " * 500}]}
    kinds = [answer["error"] for answer in await answers({"model": "gpt-5"}, prefilled, long, context=400)]
    assert [error["type"] for error in kinds] == ["not_found_error", "invalid_request_error", "invalid_request_error"]
    assert "ends with the assistant" in kinds[1]["message"]
    assert kinds[2]["message"].startswith("prompt is too long: ")


async def test_a_prompt_is_counted_without_a_turn_as_it_would_be_sampled() -> None:
    counted: list[int] = []

    async def counting(caller: Caller) -> None:
        body = {"model": "policy", **MESSAGES.body([user("hi")])}
        headers = {"x-api-key": caller.model.api_key}
        url = f"{caller.root}/v1/messages/count_tokens"
        counted.append((await caller.http.post(url, json=body, headers=headers)).json()["input_tokens"])
        said = await caller.ask(user("hi"))
        body |= MESSAGES.body([user("hi"), said, user("again")])
        counted.append((await caller.http.post(url, json=body, headers=headers)).json()["input_tokens"])
        await caller.ask(user("hi"), said, user("again"))

    trajectory, heard = await play(MESSAGES, counting)
    assert counted == [len(prompt.ids) for prompt, _, _ in heard.calls]
    assert (trajectory.turns, trajectory.error) == (2, "")


async def test_an_overlong_prompt_is_counted_too() -> None:
    async def counting(caller: Caller) -> None:
        body = {"model": "policy", **MESSAGES.body([user("hi " * 500)])}
        headers = {"x-api-key": caller.model.api_key}
        response = await caller.http.post(f"{caller.root}/v1/messages/count_tokens", json=body, headers=headers)
        assert response.json()["input_tokens"] > 400
        await caller.ask(user("hi"))

    trajectory, _ = await play(MESSAGES, counting, context=400)
    assert (trajectory.turns, trajectory.error) == (1, "")

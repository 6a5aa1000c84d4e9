"""What only the responses of the OpenAI API have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrl.endpoint import conversations
from agentrl.types import Message
from tests.unit.endpoint.speakers import Caller, Responses, user
from tests.unit.endpoint.test_apis import play
from tests.unit.rollout.cases import check_law_1

RESPONSES = Responses()


async def messages(body: dict[str, Any]) -> list[Message]:
    """The messages that a request has in the episode, without the answer."""
    trajectory, _ = await play(RESPONSES, lambda caller: caller.post(body))
    return list(trajectory.messages[:-1])


async def test_a_text_is_a_message_of_the_user_after_the_instructions() -> None:
    assert await messages({"input": "hi", "instructions": "You add."}) == [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "hi"},
    ]


async def test_calls_and_the_message_before_them_are_one_turn() -> None:
    calls = [{"type": "function_call", "call_id": name, "name": "add", "arguments": "{}"} for name in "abc"]
    output = [{"type": "function_call_output", "call_id": name, "output": name.upper()} for name in "abc"]
    said = {"role": "assistant", "content": "I add."}
    items = [
        user("hi"),
        said,
        {"type": "reasoning", "id": "r", "summary": []},
        *calls[:2],
        *output[:2],
        calls[2],
        output[2],
    ]
    read = await messages({"input": items})
    assert [m["role"] for m in read] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [[call["id"] for call in m.get("tool_calls", ())] for m in read if m["role"] == "assistant"] == [
        ["a", "b"],
        ["c"],
    ]
    assert [m["content"] for m in read] == ["hi", "I add.", "A", "B", "", "C"]


async def test_a_type_that_is_null_is_absent() -> None:
    items = [
        {"type": None, **user("hi")},
        {"type": None, "role": "assistant", "content": "4"},
        {"type": None, **user("?")},
    ]
    assert [(m["role"], m["content"]) for m in await messages({"input": items})] == [
        ("user", "hi"),
        ("assistant", "4"),
        ("user", "?"),
    ]


def reasoning(*texts: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in texts], **more}


async def test_reasoning_begins_the_turn_that_follows_it() -> None:
    calls = [{"type": "function_call", "call_id": name, "name": "add", "arguments": "{}"} for name in "abc"]
    items = [
        *(user("hi"), reasoning("h", "m")),
        *({"role": "assistant", "content": "I add."}, calls[0], reasoning("so"), reasoning("!"), calls[1], calls[2]),
        *(reasoning("dropped"), user("and?"), {"role": "assistant", "content": "no"}),
        *(reasoning("end"), {"role": "assistant", "content": "7"}, user("sure?")),
    ]
    assert [
        (m["role"], m["content"], m.get("reasoning_content"), [call["id"] for call in m.get("tool_calls", ())])
        for m in await messages({"input": items})
    ] == [
        ("user", "hi", None, []),
        ("assistant", "I add.", "hm", ["a"]),
        ("assistant", "", "so!", ["b", "c"]),
        ("user", "and?", None, []),
        ("assistant", "no", None, []),
        ("assistant", "7", "end", []),
        ("user", "sure?", None, []),
    ]


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"content": None},
        {"content": []},
        {"content": "hm"},
        {"content": [5]},
        {"content": [{"type": "reasoning_text", "text": None}]},
        {"summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    ],
)
async def test_reasoning_without_a_text_changes_nothing(item: dict[str, Any]) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"}
    said = {"role": "assistant", "content": "I add."}
    _, answer = await messages({"input": [user("hi"), said, {"type": "reasoning", **item}, call]})
    assert (answer["content"], len(answer["tool_calls"]), "reasoning_content" in answer) == ("I add.", 1, False)


async def test_a_request_continues_the_response_that_it_names_with_instructions_of_its_own() -> None:
    async def chained(caller: Caller) -> None:
        tools = {"tools": RESPONSES.body([])["tools"]}
        first = (await caller.post({"input": "3 + 4?", "instructions": "You add.", **tools})).json()
        (call,) = [item for item in first["output"] if item["type"] == "function_call"]
        output = [{"type": "function_call_output", "call_id": call["call_id"], "output": "7"}]
        second = (await caller.post({"input": output, "previous_response_id": first["id"], **tools})).json()
        assert second["previous_response_id"] == first["id"]
        await caller.post({"input": "again", "instructions": "You add.", "previous_response_id": first["id"], **tools})

    script = ['<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>', "It is 7.", "7"]
    trajectory, _ = await play(RESPONSES, chained, script)
    roles = [message["role"] for message in trajectory.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert len(trajectory.sequences) == 2


async def test_a_conversation_that_goes_on_by_ids_is_one_sequence() -> None:
    async def chained(caller: Caller) -> None:
        before: dict[str, Any] = {}
        for text in ("one", "two", "three"):
            response = await caller.post({"input": text, "instructions": "Count.", "stream": text == "two", **before})
            events = [line for line in response.text.splitlines() if line.startswith("data: ")]
            done = json.loads(events[-1].removeprefix("data: "))["response"] if events else response.json()
            before = {"previous_response_id": done["id"]}

    trajectory, heard = await play(RESPONSES, chained, ["four"])
    assert [m["content"] for m in trajectory.messages] == ["Count.", "one", "four", "two", "four", "three", "four"]
    assert len(trajectory.sequences) == 1
    check_law_1(trajectory, heard.calls)


async def test_responses_that_are_not_kept_are_refused_by_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST", 2)

    async def chained(caller: Caller) -> None:
        bodies: list[dict[str, Any]] = [{}, {}, {}, {"store": False}]
        ids = [(await caller.post({"input": "hi", **body})).json()["id"] for body in bodies]
        for known, name in ((False, ids[3]), (False, ids[0]), (True, ids[1]), (True, ids[2]), (False, "resp_x")):
            response = await caller.post({"input": "hi", "previous_response_id": name})
            assert (response.status_code == 200) is known
            if not known:
                assert RESPONSES.error(response.json())["code"] == "previous_response_not_found"

    trajectory, _ = await play(RESPONSES, chained, max_turns=9)
    assert (trajectory.error, trajectory.turns) == ("", 6)


@pytest.mark.parametrize("name", ["conversation", "prompt", "background"])
async def test_state_that_the_endpoint_does_not_keep_is_refused_by_name(name: str) -> None:
    async def asking(caller: Caller) -> None:
        error = RESPONSES.error((await caller.post({"input": "hi", name: name == "background" or "x"})).json())
        assert f"has no {name}: send the whole conversation" in error["message"]
        error = RESPONSES.error((await caller.post({"input": [{"type": "item_reference", "id": "x"}]})).json())
        assert error["message"].startswith("input[0] has the type 'item_reference'")
        await caller.ask(user("hi"))

    trajectory, _ = await play(RESPONSES, asking)
    assert (trajectory.error, trajectory.turns) == ("", 1)


async def test_a_thought_is_an_item_before_the_message() -> None:
    async def asking(caller: Caller) -> None:
        output = (await caller.post({"input": "hi"})).json()["output"]
        assert [item["type"] for item in output] == ["reasoning", "message"]
        assert output[0]["content"][0]["text"] == "hm"

    trajectory, _ = await play(RESPONSES, asking, ["<think>\nhm\n</think>\n\nfour"])
    assert trajectory.error == ""

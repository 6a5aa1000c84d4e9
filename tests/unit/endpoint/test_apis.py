"""The rules of the endpoint, each in every API, with nothing but httpx."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from agentrl.types import Message, StopReason, Trajectory
from tests.unit.endpoint.speakers import NAMES, SPEAKERS, Caller, Chat, Responses, Speaker, result, user
from tests.unit.rollout import agents
from tests.unit.rollout.cases import Listening, check_law_1

CALLS = "".join(f'<tool_call>{{"name": "add", "arguments": {{"a": {n}, "b": 4}}}}</tool_call>' for n in (3, 5))
SCRIPT = (f" Let me add.\n{CALLS}", "7 and 9.")
each_api = pytest.mark.parametrize("speaker", SPEAKERS, ids=NAMES)
Agent = Callable[[Caller], Awaitable[Any]]


async def play(speaker: Speaker, agent: Agent, script: Any = ("four",), **changes: Any) -> tuple[Trajectory, Listening]:
    return await agents.play(lambda client: agent(Caller(client.http, client.model, speaker)), script, **changes)


async def tool_loop(caller: Caller, echo: Callable[[Message], Message] = lambda said: said) -> str:
    asked: list[Message] = [{"role": "system", "content": "You add."}, user("3 + 4, 5 + 4?")]
    first = await caller.ask(*asked)
    assert [call["function"]["arguments"]["a"] for call in first["tool_calls"]] == [3, 5]  # type: ignore[index]
    said = echo(first)
    results = [result(call["id"], text) for call, text in zip(said["tool_calls"], ["7", "9"], strict=True)]
    return str((await caller.ask(*asked, said, *results))["content"])


def tokens(trajectory: Trajectory) -> list[tuple[list[int], list[int]]]:
    return [(list(sequence.ids), list(sequence.mask)) for sequence in trajectory.sequences]


@each_api
async def test_every_api_trains_the_same_tokens_in_one_sequence(speaker: Speaker) -> None:
    trajectory, heard = await play(speaker, tool_loop, SCRIPT)
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, trajectory.reward, len(trajectory.sequences)) == (2, 1.0, 1)
    assert trajectory.is_trainable
    check_law_1(trajectory, heard.calls)
    as_chat, _ = await play(Chat(), tool_loop, SCRIPT)
    assert tokens(trajectory) == tokens(as_chat)
    assert [(m["role"], m["content"]) for m in trajectory.messages] == [
        (m["role"], m["content"]) for m in as_chat.messages
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completions_have_the_logprobs_of_sampled_tokens(*, stream: bool) -> None:
    async def asking(client: agents.Client) -> None:
        url, key = f"{client.model.base_url}/chat/completions", {"authorization": f"Bearer {client.model.api_key}"}
        body = {"model": client.model.name, "messages": [user("one")], "logprobs": True, "stream": stream}
        refused = await client.http.post(url, json=body | {"top_logprobs": 2}, headers=key)
        assert (refused.status_code, "top_logprobs is 2" in refused.text) == (400, True)
        refused = await client.http.post(url, json=body | {"continue_final_message": True}, headers=key)
        assert (refused.status_code, "continue_final_message is true" in refused.text) == (400, True)
        text = (await client.http.post(url, json=body, headers=key)).text
        first = json.loads(text.splitlines()[0].removeprefix("data: "))
        found.extend(one["logprob"] for one in first["choices"][0]["logprobs"]["content"])

    found: list[float] = []
    trajectory, _ = await agents.play(asking, ["four"])
    assert found == [value for segment in trajectory.segments if segment.is_action for value in segment.logprobs]
    assert found


@each_api
async def test_a_history_is_compared_by_its_meaning(speaker: Speaker) -> None:
    def changed(said: Message) -> Message:
        calls = [{**call, "id": f"mine-{n}"} for n, call in enumerate(said["tool_calls"])]
        return {**said, "content": f"\n {str(said['content']).strip()}", "tool_calls": calls}  # type: ignore[typeddict-item]

    trajectory, heard = await play(speaker, partial(tool_loop, echo=changed), SCRIPT)
    assert len(trajectory.sequences) == 1
    check_law_1(trajectory, heard.calls)


@each_api
async def test_equal_answers_are_continued_each_with_its_own_reasoning(speaker: Speaker) -> None:
    async def backwards(caller: Caller) -> None:
        first, then = speaker.body([user("sum")]), speaker.body([user("sure?")])
        key = "input" if "input" in first else "messages"
        answers = [(await caller.post(first)).json() for _ in range(2)]
        for answer in reversed(answers):
            await caller.post(first | {key: [*first[key], *speaker.items(answer), *then[key]]})

    script = [*(f"<think>\nplan {n}\n</think>\n\n7" for n in "AB"), "end B", "end A"]
    trajectory, _ = await play(speaker, backwards, script)
    texts = [agents.TOOLED.decode(sequence.ids) for sequence in trajectory.sequences]
    assert [[word for word in ("plan A", "plan B", "end A", "end B") if word in text] for text in texts] == [
        ["plan A", "end A"],
        ["plan B", "end B"],
    ]


async def test_a_message_of_calls_alone_may_come_back_with_null_as_its_content() -> None:
    script = (CALLS, "7 and 9.")
    trajectory, heard = await play(Chat(), partial(tool_loop, echo=lambda said: {**said, "content": None}), script)  # type: ignore[typeddict-item]
    assert (len(trajectory.sequences), trajectory.turns) == (1, 2)
    check_law_1(trajectory, heard.calls)


@each_api
@pytest.mark.parametrize("script", [SCRIPT[:1], SCRIPT[1:], (CALLS,)], ids=["text and calls", "text", "calls"])
async def test_a_stream_says_what_the_json_says(speaker: Speaker, script: Any) -> None:
    said: list[Message] = []

    async def both(caller: Caller) -> None:
        said.append(await caller.ask(user("hi")))
        said.append(await caller.stream(user("hi")))

    await play(speaker, both, script * 2)
    for message in said:
        for call in message.get("tool_calls", ()):
            assert call.pop("id")
    assert said[0] == said[1]


@each_api
async def test_every_answer_and_call_has_an_id_of_its_own_and_its_usage(speaker: Speaker) -> None:
    answers: list[dict[str, Any]] = []

    async def twice(caller: Caller) -> None:
        answers.extend([(await caller.post(speaker.body([user("hi")]))).json() for _ in range(2)])

    _, heard = await play(speaker, twice, SCRIPT[:1])
    assert answers[0]["id"] != answers[1]["id"]
    assert len({call["id"] for answer in answers for call in speaker.said(answer)["tool_calls"]}) == 4
    prompt, _, completion = heard.calls[0]
    assert speaker.usage(answers[0]) == (len(prompt.ids), len(completion.ids))


@each_api
async def test_an_empty_answer_is_a_turn(speaker: Speaker) -> None:
    async def silent(caller: Caller) -> None:
        said = await caller.ask(user("hi"))
        assert said["content"] == ""
        await caller.ask(user("hi"), said, user("again"))

    trajectory, heard = await play(speaker, silent, ["<|im_end|>", "four"])
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.AGENT_DONE, 2)
    check_law_1(trajectory, heard.calls)


@each_api
async def test_a_call_that_no_client_can_read_arrives_as_text(speaker: Speaker) -> None:
    async def broken(caller: Caller) -> None:
        said = await caller.ask(user("hi"))
        assert said == {"role": "assistant", "content": '<tool_call>{"name": add}</tool_call>'}
        await caller.ask(user("hi"), said, user("again"))

    trajectory, _ = await play(speaker, broken, ['<tool_call>{"name": add}</tool_call>', "four"])
    assert (len(trajectory.sequences), trajectory.error) == (1, "")


# --- retries and parameters -----------------------------------------------------------------------------------


@each_api
async def test_a_retry_is_answered_with_the_first_answer_and_an_equal_request_is_a_new_turn(speaker: Speaker) -> None:
    said: list[tuple[Any, str]] = []

    async def retrying(caller: Caller) -> None:
        retry, keyed = "x_stainless_retry_count", {"idempotency_key": "k"}
        marks: list[dict[str, str]] = [{}, {retry: "1"}, {retry: "2"}, {}, keyed, keyed]
        for mark in marks:
            answer = (await caller.post(speaker.body([user("hi")]), **mark)).json()
            said.append((speaker.said(answer)["content"], answer["id"]))

    trajectory, heard = await play(speaker, retrying, ["one", "two", "three", "four"])
    assert [text for text, _ in said] == ["one", "one", "one", "two", "three", "three"]
    assert len({name for _, name in said}) == 3
    assert (len(heard.calls), trajectory.turns, len(trajectory.sequences)) == (3, 3, 3)


@each_api
async def test_sampling_parameters_are_those_of_the_episode(speaker: Speaker) -> None:
    demands = {"temperature": 0.0, "top_p": 0.1, "logit_bias": {"5": 100}, "seed": 1, "unknown": [1]}
    _, heard = await play(speaker, lambda c: c.ask(user("hi"), **demands), temperature=0.7)
    assert heard.calls[0][1].temperature == 0.7


@each_api
async def test_an_agent_may_ask_for_fewer_tokens(speaker: Speaker) -> None:
    async def brief(caller: Caller) -> None:
        response = await caller.post(speaker.body([user("hi")]) | {speaker.limit: 2})
        assert speaker.why_ended(response.json()) == "length"

    trajectory, heard = await play(speaker, brief, ["four five six"])
    assert heard.calls[0][1].max_tokens == 2
    assert trajectory.stop_reason is StopReason.AGENT_DONE


@pytest.mark.parametrize("other", [{}, {"max_tokens": 5}, {"max_tokens": None}])
async def test_chat_completions_accept_the_newer_name_of_the_limit(other: dict[str, Any]) -> None:
    async def brief(caller: Caller) -> None:
        response = await caller.post(caller.speaker.body([user("hi")]) | {"max_completion_tokens": 2, **other})
        assert response.json()["usage"]["completion_tokens"] == 2

    _, heard = await play(Chat(), brief, ["four five six"])
    assert heard.calls[0][1].max_tokens == 2


async def test_the_models_are_the_policy_with_its_context() -> None:
    async def asking(caller: Caller) -> None:
        key = {"authorization": f"Bearer {caller.model.api_key}"}
        response = await caller.http.get(f"{caller.root}/v1/models", headers=key)
        [model] = response.json()["data"]
        assert (await caller.http.get(f"{caller.root}/v1/models/{model['id']}", headers=key)).json() == model
        assert (await caller.http.get(f"{caller.root}/v1/models/another", headers=key)).status_code == 404
        assert (model["id"], model["max_model_len"]) == (caller.model.name, 400)
        await caller.ask(user("hi"))

    trajectory, _ = await play(Chat(), asking, context=400)
    assert (trajectory.error, trajectory.turns) == ("", 1)


@each_api
async def test_a_session_id_routes_nothing(speaker: Speaker) -> None:
    async def named(caller: Caller) -> None:
        async def ask(session: str, *messages: Message) -> Message:
            response = await caller.post(speaker.body(messages), x_session_id=session)
            return speaker.said(response.json())

        first = await ask("a", user("hi"))
        await ask("b", user("hi"), first, user("and now?"))  # another session, and the same conversation
        await ask("a", user("who is it?"))  # the first session, and another conversation

    trajectory, heard = await play(speaker, named, ["one", "two", "three"])
    assert (trajectory.error, trajectory.turns) == ("", 3)
    assert [sum(segment.is_action for segment in each.segments) for each in trajectory.sequences] == [2, 1]
    check_law_1(trajectory, heard.calls)


@pytest.mark.parametrize(("speaker", "key"), [(SPEAKERS[0], "stop"), (SPEAKERS[2], "stop_sequences")])
async def test_stop_strings_cut_the_text_and_keep_the_tokens(speaker: Speaker, key: str) -> None:
    async def stopping(caller: Caller) -> None:
        said = await caller.ask(user("hi"), **{key: ["Observation:"]})
        assert said["content"] == "do it. "
        await caller.ask(user("hi"), said, user("7"))

    trajectory, heard = await play(speaker, stopping, ["do it. Observation: 7", "four"])
    assert heard.calls[0][1].stop == ("Observation:",)
    assert len(trajectory.sequences) == 1
    check_law_1(trajectory, heard.calls)


# --- what frameworks send -------------------------------------------------------------------------------------


def parts(role: str, text: str) -> Any:
    return {"role": role, "content": [{"type": "text", "text": text}]}


async def test_smolagents_turns_calls_into_text_and_has_a_sequence_for_every_turn() -> None:
    """As smolagents 1.26 sends it: lists of parts, stop strings, tool_choice required, observations of the user."""
    options = {"stop": ["Observation:", "Calling tools:"], "tool_choice": "required"}
    call = "Let me add.\nCalling tools:\n[{'id': 'call00000', 'type': 'function', 'function': {'name': 'add'}}]"

    async def smol(caller: Caller) -> None:
        messages = [parts("system", "You act."), parts("user", "New task:\n3 + 4?")]
        tools = {"tools": caller.speaker.body([])["tools"], **options}
        for said in (parts("assistant", call), None):
            answer = (await caller.post({"messages": messages, **tools})).json()
            assert answer["usage"]["prompt_tokens"] > 0
            assert answer["choices"][0]["message"]["content"] == "Let me add."
            messages = [*messages, said, parts("user", "Observation:\n7")]

    trajectory, heard = await play(Chat(), smol, ["Let me add."])
    assert (trajectory.turns, len(trajectory.sequences), trajectory.error) == (2, 2, "")
    assert [sum(sequence.mask) for sequence in trajectory.sequences] == [len(c.ids) for _, _, c in heard.calls]


async def test_inspect_greets_before_its_conversation_which_stays_one_sequence() -> None:
    """As inspect_ai 0.3.285 sends it with its provider `openai`: a probe, then items with ids and statuses."""
    spoken: Any = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "store": False}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "3 + 4?"}]}

    async def inspect(caller: Caller) -> None:
        tools = {"tools": caller.speaker.body([])["tools"], **spoken}
        await caller.post({"input": "Please say 'hello, world'", "reasoning": {"effort": "low", "summary": "auto"}})
        output = (await caller.post({"input": [asked], **tools})).json()["output"]
        (call,) = [item for item in output if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "7"}
        await caller.post({"input": [asked, *output, result], **tools})

    script = ["hello, world", '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>', "7"]
    trajectory, heard = await play(Responses(), inspect, script)
    assert (trajectory.turns, len(trajectory.sequences), trajectory.error) == (3, 2, "")
    check_law_1(trajectory, heard.calls)


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_stream_of_chat_completions_reports_its_usage_once(is_asked: bool) -> None:
    events: list[dict[str, Any]] = []

    async def streaming(caller: Caller) -> None:
        options = {"stream_options": {"include_usage": True}} if is_asked else {}
        events.extend(await caller.events(user("3 + 4?"), **options))

    await play(Chat(), streaming, ["7"])
    usages = [event.get("usage") for event in events]
    assert [bool(usage) for usage in usages] == [False] * (len(events) - 1) + [True]
    assert usages[-1]["completion_tokens"] > 0
    assert all("usage" in event for event in events) == is_asked
    assert [len(event["choices"]) for event in events] == [1, 1, *([0] * is_asked)]


# --- refusals -------------------------------------------------------------------------------------------------

IMAGE: Any = {"role": "user", "content": [{"type": "image"}]}
REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no json": ({"tools": "all"}, 400, "the body is not what this API takes"),
    "no tokens": ({"max_tokens": 0, "max_output_tokens": 0}, 400, "the limit of tokens is 0"),
    "another model": ({"model": "gpt-5"}, 404, "the model that is trained is 'policy'"),
    "a tool of others": ({"tools": [{"type": "web_search"}]}, 400, "this endpoint takes functions"),
}


@each_api
@pytest.mark.parametrize(("change", "status", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_request_that_cannot_be_served_is_refused_and_never_trained(
    speaker: Speaker, change: dict[str, Any], status: int, why: str
) -> None:
    async def wrong(caller: Caller) -> None:
        response = await caller.post(speaker.body([user("hi")]) | change)
        assert response.status_code == status
        assert why in speaker.error(response.json())["message"]
        await caller.ask(user("hi"))

    trajectory, heard = await play(speaker, wrong)
    assert (trajectory.error, len(heard.calls), trajectory.turns) == ("", 1, 1)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "assistant", "tool_calls": 5}, "has tool_calls that are no list"),
        ({"role": "user", "content": [{"type": ["text"], "text": "hi"}]}, "has a part of type ['text']"),
        ({"role": "user", "content": [{"type": {}, "text": "hi"}]}, "has a part of type {}"),
    ],
)
async def test_a_message_of_another_form_is_refused_and_not_dropped(message: dict[str, Any], why: str) -> None:
    async def wrong(caller: Caller) -> None:
        response = await caller.post(SPEAKERS[0].body([user("hi")]) | {"messages": [user("hi"), message]})
        assert response.status_code == 400
        assert why in SPEAKERS[0].error(response.json())["message"]
        await caller.ask(user("hi"))

    trajectory, _ = await play(SPEAKERS[0], wrong)
    assert (trajectory.error, trajectory.turns) == ("", 1)


SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
MASKED = [
    (SPEAKERS[0], {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}),
    (SPEAKERS[0], {"response_format": {"type": "json_object"}}),
    (SPEAKERS[0], {"structured_outputs": {"regex": "a+"}}),
    (SPEAKERS[0], {"guided_regex": "a+"}),
    (SPEAKERS[1], {"text": {"format": {"name": "x", **SCHEMA}}}),
    (SPEAKERS[2], {"output_config": {"format": SCHEMA}}),
    (SPEAKERS[2], {"output_format": SCHEMA}),
    (SPEAKERS[1], {"structured_outputs": {"regex": "a+"}}),
    (SPEAKERS[2], {"guided_json": SCHEMA}),
]


@pytest.mark.parametrize(("speaker", "change"), MASKED)
async def test_a_form_that_needs_a_mask_is_refused_and_plain_text_is_not(
    speaker: Speaker, change: dict[str, Any]
) -> None:
    async def formal(caller: Caller) -> None:
        response = await caller.post(speaker.body([user("hi")]) | change)
        assert response.status_code == 400
        assert "another distribution than the policy" in speaker.error(response.json())["message"]
        plain = {"response_format": {"type": "text"}, "text": {"format": {"type": "text"}, "verbosity": "low"}}
        await caller.ask(user("hi"), **plain)

    trajectory, heard = await play(speaker, formal)
    assert (trajectory.error, len(heard.calls), trajectory.turns) == ("", 1, 1)


@pytest.mark.parametrize(("speaker", "change"), MASKED)
async def test_a_form_of_the_answer_of_a_role_is_refused_without_a_word_about_training(
    speaker: Speaker, change: dict[str, Any]
) -> None:
    async def formal(caller: Caller) -> None:
        response = await caller.post(speaker.body([user("hi")]) | change | {"model": "judge"})
        assert response.status_code == 400
        why = speaker.error(response.json())["message"]
        assert ("a role takes messages, and no form of its answer" in why, "trained" in why) == (True, False)
        await caller.ask(user("hi"))

    trajectory, _ = await play(speaker, formal)
    assert (trajectory.error, trajectory.turns) == ("", 1)


@each_api
async def test_a_body_with_an_encoding_is_refused_by_its_name(speaker: Speaker) -> None:
    async def packed(caller: Caller) -> None:
        keys = {"authorization": f"Bearer {caller.model.api_key}", "content-encoding": "gzip"}
        response = await caller.http.post(caller.root + speaker.path, content=b"\x1f\x8b", headers=keys)
        assert (response.status_code, "Content-Encoding gzip" in response.text) == (415, True)
        await caller.ask(user("hi"))

    trajectory, _ = await play(speaker, packed)
    assert trajectory.error == ""


@each_api
async def test_arguments_that_are_an_object_as_text_are_read(speaker: Speaker) -> None:
    async def agent(caller: Caller) -> None:
        (call,) = (await caller.ask(user("3 + 4?")))["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": {"a": 3}}

    said = '<tool_call>{"name": "add", "arguments": "{\\"a\\": 3}"}</tool_call>'
    trajectory, _ = await play(speaker, agent, [said])
    assert trajectory.error == ""


@each_api
async def test_half_a_surrogate_pair_in_a_request_is_a_question_mark(speaker: Speaker) -> None:
    async def halved(caller: Caller) -> None:
        key = {"authorization": f"Bearer {caller.model.api_key}"}
        body = json.dumps({"model": "policy", **speaker.body([user("hi \ud800 \U0001f600 \\ud800")])})
        response = await caller.http.post(caller.root + speaker.path, content=body, headers=key)
        assert (response.status_code, "\\ud83d" in body) == (200, True), response.text
        cut = await caller.http.post(caller.root + speaker.path, content=body[:-1], headers=key)
        assert (cut.status_code, "the body is not what this API takes" in cut.text) == (400, True)

    trajectory, _ = await play(speaker, halved)
    assert trajectory.error == ""
    assert trajectory.messages[0]["content"] == "hi ? \U0001f600 \\ud800"


@each_api
async def test_content_other_than_text_and_no_content_are_refused(speaker: Speaker) -> None:
    async def wrong(caller: Caller) -> None:
        (key,) = speaker.body([]).keys() - {"tools"}
        for content in ([], [IMAGE], [{"role": "alien", "content": "hi"}]):
            response = await caller.post({key: content})
            assert response.status_code == 400, response.text
            assert speaker.error(response.json())["message"].startswith(key)
        await caller.ask(user("hi"))

    trajectory, _ = await play(speaker, wrong)
    assert (trajectory.error, trajectory.turns) == ("", 1)


@each_api
async def test_an_unknown_key_is_refused_and_either_header_names_the_episode(speaker: Speaker) -> None:
    async def intruding(caller: Caller) -> None:
        body, key = {"model": "policy", **speaker.body([user("hi")])}, caller.model.api_key
        own: list[dict[str, str]] = [{"x-api-key": key}, {"x-api-key": key, "authorization": "Bearer other"}]
        own += [{"x-api-key": "other", "authorization": f"Bearer {key}"}]
        foreign: list[dict[str, str]] = [
            {},
            {"x-api-key": "other"},
            {"x-api-key": "other", "authorization": "Bearer x"},
        ]
        for headers, status in (*((one, 401) for one in foreign), *((one, 200) for one in own)):
            response = await caller.http.post(caller.root + speaker.path, json=body, headers=headers)
            assert response.status_code == status
            if status == 401:
                assert "belongs to no running episode" in speaker.error(response.json())["message"]

    trajectory, _ = await play(speaker, intruding)
    assert (trajectory.error, trajectory.turns) == ("", 3)


@each_api
async def test_an_overlong_conversation_is_refused_in_the_words_that_clients_know(speaker: Speaker) -> None:
    async def long(caller: Caller) -> None:
        await caller.ask(user("hi"))
        response = await caller.post(speaker.body([user("hi " * 500)]))
        assert response.status_code == 400
        assert "maximum context length is 400" in speaker.error(response.json())["message"]
        response.raise_for_status()

    trajectory, _ = await play(speaker, long, context=400)
    assert trajectory.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert trajectory.is_valid

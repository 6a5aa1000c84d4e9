"""The renderer without a tokenizer keeps the promises of the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.endpoint import Endpoint
from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import EnvDriver
from agentrl.errors import EnvError
from agentrl.rollout.byte_renderer import END, VOCAB_SIZE, ByteRenderer, encode
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime
from agentrl.rollout.formatting import write_calls
from agentrl.types import Message, StopReason, ToolCall, ToolSpec
from tests.unit.rollout.cases import Chat, Listening, check_law_1, request

RENDERER = ByteRenderer()
TEXT = st.text(st.characters(exclude_characters="\0"))
TOOL = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = ToolCall(id="call00300", type="function", function={"name": "add", "arguments": {"a": 1}})
RESULT: Message = {"role": "tool", "content": "3", "tool_call_id": "call00300", "name": "add"}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def text_in(ids: tuple[int, ...]) -> str:
    return bytes(token for token in ids if token != END).decode()


@given(TEXT, TEXT, st.lists(TEXT, min_size=1, max_size=3), st.booleans())
def test_an_extended_conversation_is_the_one_that_is_rendered(
    question: str, answer: str, more: list[str], is_cut: bool
) -> None:
    prompt = RENDERER.first([user(question)])
    sampled = (*encode(answer), *(() if is_cut else RENDERER.stop_token_ids))
    new = [user(text) for text in more]
    added = RENDERER.extend(prompt, sampled, assistant(answer), new)
    assert prompt + sampled + added == RENDERER.first([user(question), assistant(answer), *new])


@given(st.lists(st.integers(0, VOCAB_SIZE - 1)).map(tuple))
def test_any_tokens_are_a_message_and_stay_as_they_were_sampled(sampled: tuple[int, ...]) -> None:
    reply = RENDERER.parse((), sampled, [TOOL])
    added = RENDERER.extend((), sampled, reply, [user("next")], [TOOL])
    end = () if sampled[-1:] == RENDERER.stop_token_ids else RENDERER.stop_token_ids
    assert added == (*end, *b"user: next", END, *b"assistant: ")


def test_a_tool_call_and_its_result_extend_the_conversation() -> None:
    prompt = RENDERER.first([{"role": "system", "content": "Be brief."}, user("1+2?")], [TOOL])
    assert text_in(prompt).startswith("system: Be brief.")
    assert '"add"' in text_in(prompt)
    sampled = (*encode(write_calls([CALL])), END)
    reply = RENDERER.parse(prompt, sampled, [TOOL], turn=3)
    assert reply == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    added = RENDERER.extend(prompt, sampled, reply, [RESULT], [TOOL])
    assert text_in(added) == "tool: 3assistant: "
    assert "<tool_call>" in text_in(RENDERER.first([user("1+2?"), reply, RESULT], [TOOL]))


def test_a_malformed_call_is_rendered() -> None:
    broken: Message = {**assistant(""), "tool_calls": [{"function": {"name": "", "arguments": "{broken"}}]}
    assert "{broken" in text_in(RENDERER.first([user("half \ud800"), broken], [TOOL]))


def test_an_image_is_refused() -> None:
    with pytest.raises(EnvError, match="image"):
        RENDERER.first([{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}])


async def test_an_episode_runs_without_a_tokenizer() -> None:
    call = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call>'
    engine = await ScriptedEngine.ready(["one", call, "two", "three"], vocab_size=VOCAB_SIZE)
    heard = Listening(engine)
    runtime = EpisodeRuntime(lambda max_turns: EnvDriver(Chat(), max_turns), RENDERER, heard, 4000, Endpoint(4000))
    trajectory = await EpisodeRunner(request(max_tokens=100), runtime).run()
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.ENV_DONE, "")
    assert [message["content"] for message in trajectory.tool_results] == ["8"]
    assert len(trajectory.sequences) == 1
    check_law_1(trajectory, heard.calls)

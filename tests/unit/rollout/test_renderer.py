"""No renderer changes sampled tokens, and every one parses text into messages."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from agentrl.config.embedded import EMBEDDED, cache_folder
from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.byte_renderer import ByteRenderer
from agentrl.rollout.formatting import readable
from agentrl.rollout.model_renderers import FamilyRenderer, TemplateRenderer
from agentrl.rollout.renderer import load_renderer
from agentrl.types import Message, ToolSpec
from tests.unit.rollout import templates
from tests.unit.rollout.templates import encode, qwen3_tokenizer, tokenizer

SMOL = cache_folder() / EMBEDDED
TEXT = st.text(max_size=30).filter(lambda text: "<|" not in text)
TOOL = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
STABLE = {"tiny": "", "smol": templates.SMOL, "tools": templates.TOOLS}


@functools.cache
def smol_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(SMOL)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("template", STABLE.values(), ids=STABLE)
@given(question=TEXT, answer=TEXT, more=st.lists(TEXT, min_size=1, max_size=3), is_cut=st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_extended_conversation_is_the_one_the_template_renders(
    template: str, question: str, answer: str, more: list[str], is_cut: bool
) -> None:
    renderer = load_renderer(tokenizer(template))
    prompt = renderer.first([user(question)])
    sampled = encode(tokenizer(template), answer) + (() if is_cut else renderer.stop_token_ids[:1])
    new = [user(text) for text in more]
    added = renderer.extend(prompt, sampled, assistant(answer), new)
    assert added is not None
    assert prompt + sampled + added == renderer.first([user(question), assistant(answer), *new])


@given(sampled=st.lists(st.integers(0, 319), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_sampled_token_is_ever_replaced_even_where_its_text_tokenises_otherwise(sampled: list[int]) -> None:
    renderer = load_renderer(tokenizer())
    prompt = renderer.first([user("q")])
    reply = renderer.parse(prompt, tuple(sampled))
    added = renderer.extend(prompt, tuple(sampled), {**reply, "content": "x"}, [user("next")])
    closing = () if sampled[-1] in renderer.stop_token_ids else renderer.stop_token_ids[:1]
    assert added == closing + encode(tokenizer(), "\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.skipif(not (SMOL / "tokenizer.json").is_file(), reason="the embedded model is not in the cache")
@given(sampled=st.lists(st.integers(17, 49151), min_size=1, max_size=12), is_cut=st.booleans(), text=TEXT)
@settings(max_examples=200, deadline=None)
def test_the_embedded_models_tokens_survive_where_a_second_tokenisation_would_change_them(
    sampled: list[int], is_cut: bool, text: str
) -> None:
    made = smol_tokenizer()
    renderer = load_renderer(made)
    assert made.chat_template == templates.SMOL
    prompt, ids = renderer.first([user(text)]), (*sampled, *(() if is_cut else renderer.stop_token_ids))
    added = renderer.extend(prompt, ids, renderer.parse(prompt, ids), [user(text)])
    assert added is not None
    whole = renderer.first([user(text), assistant(made.decode(sampled)), user(text)])
    assert made.decode(prompt + ids + added) == made.decode(whole)


@pytest.mark.parametrize("template", [templates.STRIPS, templates.HIDES], ids=["strips", "hides"])
def test_thinking_that_the_template_strips_from_history_begins_a_new_sequence(template: str) -> None:
    renderer = load_renderer(tokenizer(template))
    prompt = renderer.first([user("q")])
    ids = encode(tokenizer(), "<think>\nhm\n</think>\n\n4<|im_end|>")
    reply = renderer.parse(prompt, ids)
    assert reply == {"role": "assistant", "content": "4", "reasoning_content": "hm"}
    assert renderer.extend(prompt, ids, reply, [user("more")]) is None
    plain = encode(tokenizer(), "4<|im_end|>")
    assert renderer.extend(prompt, plain, renderer.parse(prompt, plain), [user("more")]) is not None


def test_thinking_that_the_prompt_opened_is_separated_from_the_answer() -> None:
    made = tokenizer(templates.OPENS)
    renderer = load_renderer(made)
    prompt = renderer.first([user("q")])
    assert made.decode(prompt).endswith("<think>\n")
    whole, cut = encode(made, "hm\n</think>\n\n4<|im_end|>"), encode(made, "so 4")
    assert renderer.parse(prompt, whole) == {"role": "assistant", "content": "4", "reasoning_content": "hm"}
    assert renderer.parse(prompt, cut)["content"] == ""


def test_a_template_that_rewrites_its_beginning_is_never_extended() -> None:
    renderer = load_renderer(tokenizer(templates.COUNTS))
    ids = encode(tokenizer(), "4<|im_end|>")
    assert renderer.extend(renderer.first([user("q")]), ids, assistant("4"), [user("more")]) is None


def test_the_end_of_a_turn_comes_from_the_template_if_the_tokenizer_names_another() -> None:
    made: Any = copy.deepcopy(tokenizer())
    made.eos_token = "<|endoftext|>"
    assert load_renderer(made).stop_token_ids == (*encode(made, "<|im_end|>"), *encode(made, "<|endoftext|>"))


def test_a_tokenizer_without_a_chat_template_is_refused_with_a_remedy() -> None:
    made: Any = copy.deepcopy(tokenizer())
    made.chat_template = None
    with pytest.raises(ConfigError, match="instruct model"):
        TemplateRenderer(made)


def test_parts_are_flattened_for_a_text_model_and_an_image_is_refused() -> None:
    renderer = load_renderer(tokenizer())
    parts: Message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert renderer.first([parts]) == renderer.first([user("ab")])
    with pytest.raises(EnvError, match="image"):
        renderer.first([{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}])


# --- tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", STABLE.values(), ids=STABLE)
def test_a_tool_call_and_its_result_extend_the_conversation(template: str) -> None:
    made = tokenizer(template)
    renderer = load_renderer(made)
    prompt = renderer.first([user("1+2?")], [TOOL])
    assert '"add"' in made.decode(prompt)
    sampled = encode(made, '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><|im_end|>')
    reply = renderer.parse(prompt, sampled, [TOOL], turn=3)
    call = {"id": "call00300", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    assert reply == {"role": "assistant", "content": "", "tool_calls": [call]}
    result: Message = {"role": "tool", "content": "3", "tool_call_id": "call00300", "name": "add"}
    added = renderer.extend(prompt, sampled, reply, [result], [TOOL])
    assert added is not None
    text = made.decode(added)
    assert "3" in text
    assert "add" not in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert "tool_call>" in made.decode(renderer.first([user("1+2?"), reply, result], [TOOL]))


# --- a family that `renderers` knows --------------------------------------------------------------------------


def test_a_known_family_renders_extends_and_parses_by_its_own_renderer() -> None:
    made = qwen3_tokenizer()
    renderer = load_renderer(made)
    assert isinstance(renderer, FamilyRenderer)
    prompt = renderer.first([user("1+2?")], [TOOL])
    sampled = encode(made, '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><|im_end|>')
    reply = renderer.parse(prompt, sampled, [TOOL])
    assert reply["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    result: Message = {"role": "tool", "content": "3", "tool_call_id": "call00000", "name": "add"}
    added = renderer.extend(prompt, sampled, reply, [result], [TOOL])
    assert added is not None
    assert made.decode(added).startswith("\n<|im_start|>user\n<tool_response>\n3")
    assert renderer.extend(prompt, sampled, reply, [user("and now?")], [TOOL]) is None


def test_a_known_family_that_would_drop_sampled_tokens_is_not_followed() -> None:
    made = qwen3_tokenizer()
    renderer = load_renderer(made)
    prompt = renderer.first([user("1+2?")], [TOOL])
    sampled = encode(made, '<tool_call>{"name": "add", "arguments": {}}</tool_call><|im_end|>and on')
    result: Message = {"role": "tool", "content": "3", "tool_call_id": "call00000", "name": "add"}
    assert renderer.extend(prompt, sampled, renderer.parse(prompt, sampled, [TOOL]), [result], [TOOL]) is None


def test_text_behind_what_looks_like_a_call_is_kept_once_by_every_family(monkeypatch: pytest.MonkeyPatch) -> None:
    made = qwen3_tokenizer()
    renderer = load_renderer(made)
    read = renderer._renderer.parse_response

    def all_but_calls(ids: list[int], **options: Any) -> Any:  # as the parsers of Gemma and gpt-oss return the content
        parsed = read(ids, **options)
        return replace(parsed, content=f"{parsed.content} Then.") if parsed.tool_calls else parsed

    monkeypatch.setattr(renderer._renderer, "parse_response", all_but_calls)
    said = 'I add. <tool_call>\n{"name": "add", "arguments": {}}\n</tool_call> Then.'
    assert renderer.parse(renderer.first([user("1+2?")]), encode(made, f"{said}<|im_end|>"))["content"] == said


@pytest.mark.parametrize("arguments", [[1, 2], 5, "no"])
def test_arguments_that_are_no_object_become_one_for_templates(arguments: Any) -> None:
    call: Any = {"function": {"name": "add", "arguments": arguments}}
    message = Message(role="assistant", content="", tool_calls=[call])
    assert readable(message)["tool_calls"][0]["function"]["arguments"] == {"unreadable": arguments}


MALFORMED = [
    "{broken",
    "[1]",
    "5",
    "{}",
    *(f'{{"name": {name}}}' for name in ("5", "1.5", "true", "null", "[1]", "{}")),
]


@pytest.mark.parametrize("make", [qwen3_tokenizer, tokenizer], ids=["family", "template"])
@pytest.mark.parametrize("call", MALFORMED)
def test_a_malformed_call_keeps_its_text(make: Any, call: str) -> None:
    made = make()
    renderer = load_renderer(made)
    prompt = renderer.first([user("1+2?")], [TOOL])
    reply = renderer.parse(prompt, encode(made, f"<tool_call>{call}</tool_call><|im_end|>"), [TOOL])
    assert reply["tool_calls"][0]["function"] == {"name": "", "arguments": call}


@pytest.mark.parametrize("make", [qwen3_tokenizer, tokenizer], ids=["family", "template"])
def test_without_tools_what_looks_like_a_call_is_text(make: Any) -> None:
    made = make()
    renderer = load_renderer(made)
    said = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call> Now wait.'
    for thought in ("", "<think>\nhm <tool_call>\n</think>\n\n"):
        sampled = encode(made, f"{thought}{said}<|im_end|>")
        reply = renderer.parse(renderer.first([user("1+2?")]), sampled)
        assert (reply["content"], reply.get("tool_calls")) == (said, None)


# --- what a model can write and a template or library cannot take: its episode goes on -----------------------------

DEEP = '<tool_call>{"name": "add", "arguments": {"a": ' + "[" * 3000 + "]" * 3000 + "}}</tool_call><|im_end|>"
HOSTILE = {
    "deep": DEEP,
    "nested": DEEP.replace("[" * 3000, "[" * 300).replace("]" * 3000, "]" * 300),
    "surrogate": '<tool_call>{"name": "add", "arguments": {"a": "\\ud800"}}</tool_call><|im_end|>',
    "surrogate name": '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call><|im_end|>',
    "infinite": '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call><|im_end|>',
    "no object": '<tool_call>{"name": "add", "arguments": "no"}</tool_call><|im_end|>',
    "list": '<tool_call>{"name": "add", "arguments": [1]}</tool_call><|im_end|>',
    "number": '<tool_call>{"name": "add", "arguments": 5}</tool_call><|im_end|>',
    "number name": '<tool_call>{"name": 5, "arguments": {}}</tool_call><|im_end|>',
    "broken": "<tool_call>{broken</tool_call><|im_end|>",
}
STRICT = templates.TOOLS.replace("(call.function | tojson)", "(call.function.arguments | items | list | string)")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("make", [qwen3_tokenizer, lambda: tokenizer(STRICT)], ids=["family", "template"])
def test_no_call_breaks_the_renderer(make: Any, text: str) -> None:
    made = make()
    renderer = load_renderer(made)
    prompt = renderer.first([user("1+2?")], [TOOL])
    sampled = encode(made, text)
    reply = renderer.parse(prompt, sampled, [TOOL])
    result: Message = {"role": "tool", "content": "3", "tool_call_id": "call00000", "name": "add"}
    assert renderer.extend(prompt, sampled, reply, [result], [TOOL])
    assert renderer.first([user("1+2?"), reply, result], [TOOL])


@pytest.mark.parametrize("error", [RecursionError, AssertionError, OverflowError, KeyError, StopIteration])
def test_a_parser_of_a_family_that_fails_leaves_the_text(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    made = qwen3_tokenizer()
    renderer = load_renderer(made)
    assert isinstance(renderer, FamilyRenderer)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(renderer._renderer, "parse_response", fail)
    assert renderer.parse((), encode(made, "hello"))["content"] == "hello"


PIECES = [*templates.QWEN3_TOKENS[:2], *templates.QWEN3_TOKENS[4:], "<|im_end|>", "```json\n", "```", '{"name": ']
PIECES += [
    ', "arguments": ',
    *'"{}[],: x\0é',
    "5",
    "-1e999",
    "null",
    "true",
    "NaN",
    '"add"',
    '"\\ud83d"',
    '{"a": 1}',
    '{"a":' * 1100,
]
CALL = st.builds('<tool_call>{{"name": {}, "arguments": {}}}</tool_call>'.format, *[st.sampled_from(PIECES)] * 2)


@pytest.mark.parametrize(
    "make", [qwen3_tokenizer, lambda: tokenizer(templates.OPENS), lambda: None], ids=["family", "template", "bytes"]
)
@given(pieces=st.lists(st.sampled_from(PIECES) | CALL, max_size=8), tools=st.sampled_from([(), (TOOL,)]))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_message_that_can_be_sent(make: Any, pieces: list[str], tools: tuple[ToolSpec, ...]) -> None:
    made, text = make(), "".join(pieces)
    renderer = load_renderer(made) if made else ByteRenderer()
    reply = renderer.parse(renderer.first([user("q")]), encode(made, text) if made else tuple(text.encode()), tools)
    assert all(isinstance(call["function"]["name"], str) for call in reply.get("tool_calls", ()))
    json.dumps(reply, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("make", [qwen3_tokenizer, tokenizer], ids=["family", "template"])
def test_half_a_surrogate_pair_is_a_question_mark(make: Any) -> None:
    made = make()
    renderer = load_renderer(made)
    assert "half ?" in made.decode(renderer.first([user("half \ud800")]))
    result: Message = {"role": "tool", "content": "half \ud800", "tool_call_id": "call00000", "name": "add"}
    added = renderer.extend(renderer.first([user("x")]), encode(made, "y<|im_end|>"), assistant("y"), [result])
    assert added is not None
    assert "half ?" in made.decode(added)

"""Text of a model of an unknown family is parsed into thinking, answer and tool calls."""

from __future__ import annotations

import pytest

from agentrl.rollout.formatting import with_tools_as_text, write_calls
from agentrl.rollout.parsing import (
    call_id,
    find_tool_calls,
    parse_reply,
    split_thinking,
)
from agentrl.types import ToolSpec

TOOL = ToolSpec(name="add", description="Add.", parameters={"type": "object"})
OK = {"name": "add", "arguments": {"a": 1}}
RAW = {"name": "", "arguments": "[1]"}
HALF = '{"name": "add", "arguments": {"a": "\\ud800"}}'
INFINITE = '{"name": "add", "arguments": {"a": [1e999]}}'
NESTED = '{"name": "add", "arguments": ' + "[" * 200 + "]" * 200 + "}"


@pytest.mark.parametrize(
    ("text", "is_thinking", "expected"),
    [
        ("4", False, (None, "4")),
        ("<think>hm</think>4", False, ("hm", "4")),
        (" <think>\nhm\n</think>\n\n4", False, ("hm", "4")),
        ("hm</think>4", True, ("hm", "4")),
        ("hm</think>4", False, (None, "hm</think>4")),
        ("<think>so \\boxed{4}", False, ("so \\boxed{4}", "")),
        ("cut", True, ("cut", "")),
        ("4 <think>", False, (None, "4 <think>")),
    ],
)
def test_an_unclosed_thinking_holds_no_answer(text: str, is_thinking: bool, expected: tuple[str | None, str]) -> None:
    assert split_thinking(text, is_thinking) == expected


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', [OK], ""),
        ('I add.<tool_call>{"name": "add", "arguments": {"a": 1}}', [OK], "I add."),
        ('<tool_call>{"name": "add", "parameters": {"a": 1}}</tool_call>', [OK], ""),
        ('```json\n{"name": "add", "arguments": {"a": 1}}\n```', [OK], ""),
        ('```json\n{"name": "else", "arguments": {}}\n```', [], '```json\n{"name": "else", "arguments": {}}\n```'),
        ("<tool_call>{broken</tool_call>", [{"name": "", "arguments": "{broken"}], ""),
        ("<tool_call>[1]</tool_call>", [{"name": "", "arguments": "[1]"}], ""),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', [{"name": "add", "arguments": "[1]"}], ""),
        ("<tool_call>" + "[" * 100_000, [{"name": "", "arguments": "[" * 100_000}], ""),
        ("just words", [], "just words"),
        ('a<tool_call>[1]</tool_call>b<tool_call>{"name": "add"', [RAW, {**RAW, "arguments": '{"name": "add"'}], "ab"),
        ('x ```json {"name": "add", "arguments": {"a": 1}} ``` y', [OK], "x  y"),
        ('```py\nx\n``` ```{"name": "add", "arguments": {"a": 1}}```', [OK], "```py\nx\n```"),
        ('```{"name": "add", "arguments": {"a": "```"}}```', [{"name": "add", "arguments": {"a": "```"}}], ""),
        ('```{"name": "add", "arguments": {"a": 1}}', [], '```{"name": "add", "arguments": {"a": 1}}'),
        (f"<tool_call>{HALF}</tool_call>", [{"name": "add", "arguments": HALF}], ""),
        (f"<tool_call>{INFINITE}</tool_call>", [{"name": "add", "arguments": INFINITE}], ""),
        (f"<tool_call>{NESTED}</tool_call>", [{"name": "add", "arguments": NESTED}], ""),
        ('<tool_call>{"name": "\\udc00"}</tool_call>', [{"name": "", "arguments": '{"name": "\\udc00"}'}], ""),
        (f'<tool_call>{{"name": "{"x" * 300}"}}', [{"name": "", "arguments": f'{{"name": "{"x" * 300}"}}'}], ""),
    ],
    ids=range(20),
)
def test_calls_are_read_in_each_common_form_and_never_raise(text: str, calls: list[object], rest: str) -> None:
    assert find_tool_calls(text, {"add"}) == (calls, rest)


def test_without_tools_nothing_is_a_call() -> None:
    assert "tool_calls" not in parse_reply("<tool_call>{}</tool_call>", (), 0)


def test_calls_written_out_are_read_back() -> None:
    reply = parse_reply('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', [TOOL], 0)
    assert find_tool_calls(write_calls(reply["tool_calls"]), {"add"})[0] == [OK]
    assert '"add"' in with_tools_as_text([{"role": "user", "content": "1+2?"}], [TOOL])[0]["content"]


def test_every_call_of_a_turn_has_an_id_of_nine_characters() -> None:
    ids = {call_id(turn, number) for turn in (0, 999) for number in (0, 99, 100, 99_999)}
    assert len(ids) == 8
    assert {len(one) for one in ids} == {9}

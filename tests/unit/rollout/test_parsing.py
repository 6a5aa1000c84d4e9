"""What a model of an unknown family said: thinking, answer, tool calls."""

from __future__ import annotations

import pytest

from agentrl.rollout.parsing import describe_tools, find_tool_calls, parse_reply, split_thinking, write_calls
from agentrl.types import ToolSpec

TOOL = ToolSpec(name="add", description="Add.", parameters={"type": "object"})
OK = {"name": "add", "arguments": {"a": 1}}


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
    ],
    ids=range(10),
)
def test_calls_are_read_in_each_common_form_and_never_raise(text: str, calls: list[object], rest: str) -> None:
    assert find_tool_calls(text, {"add"}) == (calls, rest)


def test_without_tools_nothing_is_a_call() -> None:
    assert "tool_calls" not in parse_reply("<tool_call>{}</tool_call>", (), 0)


def test_calls_written_out_are_read_back() -> None:
    reply = parse_reply('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', [TOOL], 0)
    assert find_tool_calls(write_calls(reply["tool_calls"]), {"add"})[0] == [OK]
    assert '"add"' in describe_tools([TOOL])

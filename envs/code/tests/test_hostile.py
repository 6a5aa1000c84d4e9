"""Answers and texts that are made to hold up or fill the process that reads them: it reads none of them."""

import ast
import tracemalloc
import unicodedata
from typing import Any

import pytest
from agentrl_code import extract as module
from agentrl_code.compare import same, same_text
from agentrl_code.dialogue import _frames
from agentrl_code.extract import defines, extract, is_program
from agentrl_code.replies import Reply
from agentrl_code.values import MOST_WEIGHT, WEIGHT, UnreadableError, weight

NONCE = b"0" * 32
MIB = 1 << 20


def frame(payload: bytes) -> bytes:
    return NONCE + b"%08x" % len(payload) + payload


def listed(item: bytes, length: int) -> bytes:
    """The answer that is a list of `length` such items."""
    return b'["value",["list",' + b",".join([item] * length) + b"],null]"


@pytest.mark.parametrize(
    "output",
    [
        frame(listed(b'["set"]', 1_900_000)),
        frame(listed(b'["deque"]', 1_500_000)),
        frame(listed(b"[]", 5_000_000)),
        frame(listed(b'""', 5_000_000)),
        frame(listed(b"{}", 5_000_000)),
        frame(listed(rb'"\\\""', 2_000_000)),
        frame(listed(b'["set"]', 16_000)) * 200,
    ],
    ids=["sets", "deques", "lists", "texts", "objects", "escapes", "many small answers"],
)
def test_an_answer_of_too_many_values_is_refused_before_they_are_made(output: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="more values than are read"):
        _frames(output, NONCE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(output)


@pytest.mark.parametrize(
    "item", [b'["set"]', b'["deque"]', b'["OrderedDict"]', b'["defaultdict"]', b"12345678", b'"abcd"']
)
def test_the_largest_answer_that_is_read_takes_little_memory(item: bytes) -> None:
    each = 1 + WEIGHT * item.count(b"[")
    output = frame(listed(item, (MOST_WEIGHT - 100) // each))
    tracemalloc.start()
    Reply.of(_frames(output, NONCE)[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150 * MIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'["list",1,2]', WEIGHT + 2),
        (b'["list",["set"],"a"]', 2 * WEIGHT + 2),
        (rb'["list","[,{\",[","\\",[]]', 2 * WEIGHT + 3),
        (b'"' + b"[," * 100_000 + b'"', 0),
        (b'{"a":[1,2]}', 2 * WEIGHT + 1),
        (b'"never closed [[,,', 0),
    ],
)
def test_what_is_in_a_text_weighs_nothing(text: bytes, expected: int) -> None:
    assert weight(text) == expected


def test_a_long_text_of_commas_is_read() -> None:
    (said,) = _frames(frame(b'["value","' + b"[," * 4_000_000 + b'",null]'), NONCE)
    assert len(Reply.of(said).value) == 8_000_000


def nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "said",
    [
        [nested(5000)],
        [nested(5000), 1, 2],
        ["value", nested(900), None],
        ["raised", nested(900), "", 0, 0, 0],
        {},
        [[]],
    ],
    ids=range(6),
)
def test_a_reply_of_any_shape_is_read_or_refused(said: Any) -> None:
    with pytest.raises(UnreadableError):
        Reply.of(said)


# --- texts --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "```" + " " * 300_000,
        "```python" + "\t" * 300_000 + "x",
        "```\n" * 100_001,
        ("\n" + " " * 1000) * 3000,
        "``` " * 100_000,
        "```" + "a" * 300_000 + "\n",
    ],
    ids=range(6),
)
def test_a_program_is_looked_for_in_one_pass(text: str) -> None:
    extract(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0315\uff9e"])
def test_a_name_with_a_thousand_accents_is_no_program(marks: str) -> None:
    """Python sorts them: 64,000 take half a minute."""
    text = f"x = a{marks * 30_000}"
    assert not is_program(text)
    assert not defines(text, "x")
    assert is_program("x = 'a\u0301'")
    assert defines("caf\u0065\u0301 = 1", "café")


def test_every_sign_that_becomes_an_accent_is_counted_as_one() -> None:
    signs = [
        sign for sign in map(chr, range(0x110000)) if unicodedata.decomposition(sign) or unicodedata.combining(sign)
    ]
    accents = [sign for sign in signs if unicodedata.combining(unicodedata.normalize("NFKD", sign)[0])]
    assert len(accents) > 500
    assert module._is_slow("".join(accents))
    assert [sign for sign in accents if not module._is_slow(sign * 100)] == []


def test_a_long_text_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(module, "parse", lambda text: parsed.append(len(text)) or ast.parse(text))
    assert not is_program("f();" * 100_000)
    assert not defines("f=1;" * 100_000, "f")
    assert parsed == []


@pytest.mark.timeout(60)
def test_a_long_word_is_no_number() -> None:
    assert not same_text("0.5", "1" * 2_000_000 + "x", 0.1)
    assert not same_text("0.5", "1" * 2_000_000, 0.1)
    assert not same_text("0.5", "٣.5", 0.1)
    assert same_text("0.5", "+.50001E0", 0.1)


def test_dicts_of_other_sizes_are_not_gone_through() -> None:
    assert not same({1: 2}, dict.fromkeys(range(10), 2))

"""Answers and texts that are made to hold up or fill the process that reads them: it reads none of them."""

import ast
import tracemalloc
import unicodedata
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from agentrl_code import Assert, Call
from agentrl_code import extract as module
from agentrl_code.compare import same, same_text
from agentrl_code.dialogue import _frames
from agentrl_code.extract import defines, extract, is_program
from agentrl_code.problem import Problem
from agentrl_code.replies import Reply
from agentrl_code.show import shown
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
    with pytest.raises(UnreadableError, match="too many values"):
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
def test_commas_inside_a_string_have_no_weight(text: bytes, expected: int) -> None:
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
    text = f"x(a{marks * 30_000})"
    assert not defines(text, "a")
    assert not is_program(f"a{marks * 30_000}")
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
    assert is_program("f();" * 100_000)
    assert defines("f=1;" * 100_000, "f")
    assert not is_program("It is long. " * 10_000)
    assert not is_program("(" * 100_000)
    assert parsed == []


LONG = f"TABLE = {list(range(5000))}\n\n\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{LONG}def f(x):\n    return TABLE[x]\n", "f"),
        (f"{LONG}async def f(x): pass", "f"),
        (f"{LONG}class f(dict): pass", "f"),
        (f"{LONG}f = TABLE.index", "f"),
        (f"{LONG}f: object = TABLE.index", "f"),
        (f"{LONG}caf\u00e9 = '{chr(0x315) * 200}'", "caf\u00e9"),
        (f"#{'x' * 20_000}\nimport sys\n", ""),
        (f"#{'x' * 20_000}\nfor line in open(0): print(line)", ""),
        (f"#{'x' * 20_000}\nprint(sum(map(int, open(0))))", ""),
    ],
    ids=range(9),
)
def test_a_long_program_without_a_block_is_one(text: str, name: str) -> None:
    assert extract(text) == text
    assert not name or defines(text, name)
    assert not defines(text, "g")


async def test_a_long_program_is_judged_as_a_short_one(grade: Any) -> None:
    text = f"{LONG}def f(x):\n    return TABLE[x]\n"
    assert (await grade(extract(text), Call("f", (4000,), expected=4000))).status == "passed"
    assert (await grade(extract(text), Call("f", (4000,), expected=4001))).status == "failed"


def test_a_long_answer_goes_on_from_an_opening_or_stands_alone() -> None:
    problem = Problem("k", "q", (), entry="f", opening="import math\ndef f(x):\n")
    body = f"    table = {list(range(5000))}\n    return table[x]\n"
    assert problem.program(body) == problem.opening + body
    assert problem.program(f"def f(x):\n{body}") == f"import math\n\ndef f(x):\n{body}"


def test_a_text_is_parsed_once_and_not_beyond_what_a_worker_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An f-string takes 17 microseconds a character."""
    parsed = []
    monkeypatch.setattr(module, "parse", lambda text: parsed.append(len(text)) or ast.parse(text))
    text = f'f = f"{"{a}" * 5000}"'
    assert extract(text) == text
    assert is_program(text)
    assert defines(text, "f")
    assert parsed == [len(text)]
    assert is_program(f'f = f"{"{a}" * 6000}"')
    assert parsed == [len(text)]


@pytest.mark.timeout(60)
def test_a_long_word_is_no_number() -> None:
    assert not same_text("0.5", "1" * 2_000_000 + "x", 0.1)
    assert not same_text("0.5", "1" * 2_000_000, 0.1)
    assert not same_text("0.5", "٣.5", 0.1)
    assert same_text("0.5", "+.50001E0", 0.1)


def test_dicts_of_other_sizes_are_not_gone_through() -> None:
    assert not same({1: 2}, dict.fromkeys(range(10), 2))


# --- values that are shown ----------------------------------------------------------------------------------------


class Counted(list[Any]):
    """A list that knows how much of it was visited."""

    visited = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.visited += 1
            yield item


NAN = {"a": Decimal("NaN"), "b": Decimal(1)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Counter(NAN), "Counter({'a': Decimal('NaN'), 'b': Decimal('1')})"),
        ([{1: Counter(NAN)}], "[{1: Counter({'a': Decimal('NaN'), 'b': Decimal('1')})}]"),
        (10**5000, "<a number of 16610 bits>"),
        (Decimal("1" * 5000), "<a Decimal of many digits>"),
        (Fraction(-1, 2), "Fraction(-1, 2)"),
        (range(1 << 2000), "range(0, <a number of 2001 bits>)"),
        ((1,), "(1,)"),
        (set(), "set()"),
        (frozenset({1}), "frozenset({1})"),
        ({1: None}.keys(), "dict_keys([1])"),
        ("x" * 500, "'" + "x" * 199 + "…"),
        (int, "<class 'int'>"),
        (object(), "<an object of type object>"),
    ],
    ids=range(13),
)
def test_a_value_is_shown_in_words_of_our_own(value: Any, text: str) -> None:
    assert shown(value) == text


def test_no_more_of_a_value_is_visited_than_is_shown() -> None:
    long = [Counted([0]) for _ in range(5000)]
    for each in long:
        each.__class__.__name__ = "list"
    assert len(shown(long)) == 201
    assert sum(each.visited for each in long) < 100


HELD_UP = (
    "from decimal import Decimal\nfrom collections import Counter\ndef f(x): return Counter(a=Decimal('NaN'), b=1)"
)


@pytest.mark.parametrize(
    "test",
    [Call("f", (2,), expected=4), Assert("assert f(2) == 4"), Call("f", (2,), expected=4, checker=lambda *_: False)],
    ids=range(3),
)
async def test_an_answer_whose_own_repr_raises_fails(grade: Any, test: Any) -> None:
    verdict = await grade(HELD_UP, test)
    assert (verdict.status, verdict.fault) == ("failed", "program")


async def test_a_checker_that_raises_with_such_an_answer_fails_it(grade: Any) -> None:
    def checker(_: Any, got: Any, expected: Any) -> bool:
        if got != expected:
            raise LookupError(got)
        return True

    verdict = await grade(HELD_UP, Call("f", (2,), expected=4, checker=checker))
    assert (verdict.status, verdict.fault) == ("failed", "program")

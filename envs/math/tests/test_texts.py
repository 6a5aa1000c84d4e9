"""No text breaks or stalls what runs in the calling process, and the README tells the truth."""

import re
from pathlib import Path

import pytest
from agentrl_math import Status, grading, verify
from agentrl_math.extract import _lowered
from agentrl_math.grading import _graded
from agentrl_math.latex import is_balanced
from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_READ_CHARS
from agentrl_math.policy import Policy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

_PLAIN = (
    r"\frac { } ( ) [ ] ^ _ ! + - * / 1 23 x \pi \sqrt , or = < \le \{ \} \cup % $ \text{ cm \pm | . e & \\ \infty sin "
    r"\log _2 \begin{pmatrix} \end{pmatrix} ^\circ ... : ~ \sum <think> ####"
)
PIECES = [*_PLAIN.split(), " ", " or ", "#### ", "answer is ", "²"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=60)
FORMS = ["{}", "\\boxed{{{}}}", "the answer is {}", "{}5", "\\boxed{{{}", "$ {} $ 5", "#### {}", "<answer>{}</answer>"]
LONG = [*PIECES, "a b ", "1,", "\\boxed{", "<answer>", "answer "]


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_no_text_raises_in_the_calling_process(response, gold):
    for text in (response, f"\\boxed{{{response}}}"):
        _graded(text, gold, Policy())


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_an_answer_is_never_unequal_to_itself(text):
    assume(is_balanced(text) and not re.search("boxed|####", text))
    verdict = _graded(f"\\boxed{{{text}}}", text, Policy(think="ignore"))
    assert getattr(verdict, "status", None) is not Status.INCORRECT


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.timeout(60)
def test_long_texts_hang_nothing(text, form):
    for policy in (Policy(), Policy(fallback="number")):
        for size in (200, 1_900, 20_000, 300_000):
            _graded(form.format(text * (size // len(text))), "5", policy)
            _graded(form.format(text * (size // len(text))), "x+1", policy)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_too_long_for_an_answer_is_read_by_no_pattern(monkeypatch, form):
    read = {name: _record(monkeypatch, name) for name in ("literal", "readings", "squeeze")}
    for text in (" 1", "{}", "5", "\\text{a}", "1,"):
        for size in (MAX_READ_CHARS, MAX_ANSWER_CHARS, 4 * MAX_ANSWER_CHARS):
            for gold in ("5", "x+1", "1,2"):
                _graded(form.format(text * size), gold, Policy())
    longest = {name: max(map(len, texts), default=0) for name, texts in read.items()}
    assert longest["literal"] <= MAX_ANSWER_CHARS
    assert max(longest["readings"], longest["squeeze"]) <= MAX_READ_CHARS


def test_a_long_answer_is_a_workers_to_read(monkeypatch):
    long = "+".join(["x"] * MAX_READ_CHARS)
    assert verify(rf"\boxed{{{long}}}", long).status == "correct"
    read = _record(monkeypatch, "readings")
    assert verify(rf"\boxed{{{long}}}", f"{MAX_READ_CHARS}x").status == "correct"
    assert verify(rf"\boxed{{{long}}}", f"{MAX_READ_CHARS + 1}x").status == "incorrect"
    assert verify(rf"\boxed{{{long}}}", "5", form="value").status == "incorrect"
    assert verify(rf"\boxed{{{'x+' * MAX_ANSWER_CHARS}x}}", "5").status == "incorrect"
    assert max(map(len, read)) <= MAX_READ_CHARS


def _record(monkeypatch, name):
    """The texts that a function of the calling process is given from now on."""
    function, read = getattr(grading, name), []

    def recorded(text, *rest):
        read.append(text)
        return function(text, *rest)

    monkeypatch.setattr(grading, name, recorded)
    return read


@pytest.mark.parametrize("spaces", [3_000, 150_000])
@pytest.mark.parametrize(
    "form", ["\\boxed{answer is {} 5\n6}", "\\boxed{5{}}", "Answer: {}5", "the answer is{}5", "{}5{}"]
)
@pytest.mark.parametrize("space", [" ", "\n", "\u200b", "\u00a0", "\t", "so ", "the ", "$", "\\! "])
@pytest.mark.timeout(60)
def test_runs_of_spaces_and_fillers_take_one_pass(space, form, spaces):
    run = space * (spaces // len(space))
    assert verify(form.replace("{}", run), "6").reward == 0.0
    assert verify("5", form.replace("{}", run)).reward in (None, 0.0, 1.0)


def test_lower_case_keeps_every_position():
    lowered = _lowered("".join(map(chr, range(0x110000))))
    assert len(lowered) == 0x110000


@settings(deadline=None)
@given(st.fractions(), st.fractions())
def test_rationals_are_equal_exactly_when_they_are(a, b):
    text = rf"\boxed{{\frac{{{a.numerator}}}{{{a.denominator}}}}}"
    assert (verify(text, str(b)).status == "correct") == (a == b)
    assert verify(text, str(a)).status == "correct"


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30))
def test_integers_are_found_however_they_are_said(n):
    plain = (f"{n}", f"{n:,}", f"**{n}**")
    for answer in (*plain, f"\\boxed{{{n:,}}}", f"#### {n}", f"The answer is {n}.", f"Answer: {n:,}"):
        assert verify(answer, str(n)).status == "correct", answer
        assert verify(answer, str(n + 1)).status == "incorrect", answer
    assert verify(f"It is {n}.", str(n), fallback="number").status == "correct"


def test_the_readme_runs():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102

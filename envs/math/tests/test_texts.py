"""No text breaks or stalls what runs in the calling process, and the README tells the truth."""

import re
import time
from pathlib import Path

import pytest
from agentrl_math import Status, verify
from agentrl_math.grading import _graded
from agentrl_math.latex import is_balanced
from agentrl_math.policy import Policy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

_PLAIN = (
    r"\frac { } ( ) [ ] ^ _ ! + - * / 1 23 x \pi \sqrt , or = < \le \{ \} \cup % $ \text{ cm \pm | . e & \\ \infty sin "
    r"\log _2 \begin{pmatrix} \end{pmatrix} ^\circ ... : ~ \sum <think> ####"
)
PIECES = [*_PLAIN.split(), " ", " or ", "#### ", "answer is ", "²"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=60)
LONG = [
    piece * (20_000 // len(piece))
    for piece in [*PIECES, "a b ", "1,", "\\boxed{", "<answer>", "answer is ", " ", "answer "]
]


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
@pytest.mark.parametrize("form", ["{}", "\\boxed{{{}}}", "the answer is {}", "{}5", "\\boxed{{{}", "$ {} $ 5"])
def test_long_texts_take_no_time(text, form):
    start = time.process_time()
    for size in (1_900, 20_000):
        _graded(form.format(text[:size]), "5", Policy())
        _graded(form.format(text[:size]), "x+1", Policy())
    assert time.process_time() - start < 1.0


@given(st.fractions(), st.fractions())
def test_rationals_are_equal_exactly_when_they_are(a, b):
    text = rf"\boxed{{\frac{{{a.numerator}}}{{{a.denominator}}}}}"
    assert (verify(text, str(b)).status == "correct") == (a == b)
    assert verify(text, str(a)).status == "correct"


@given(st.integers(-(10**30), 10**30))
def test_integers_are_found_however_they_are_said(n):
    plain = (f"{n}", f"{n:,}", f"**{n}**")
    for said in (*plain, f"\\boxed{{{n:,}}}", f"#### {n}", f"The answer is {n}.", f"Answer: {n:,}"):
        assert verify(said, str(n)).status == "correct", said
        assert verify(said, str(n + 1)).status == "incorrect", said
    assert verify(f"It is {n}.", str(n), fallback="number").status == "correct"


def test_the_readme_runs():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102

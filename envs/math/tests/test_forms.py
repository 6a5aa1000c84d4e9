"""Units and forms: what they look like is what they are."""

import contextlib
import re
from fractions import Fraction

import cases_forms as cases
import pytest
from agentrl_math import measures, numerals, verify
from agentrl_math.answer import readings
from agentrl_math.brackets import in_one_notation
from agentrl_math.limits import LimitError
from agentrl_math.units import in_parts
from hypothesis import given, settings
from hypothesis import strategies as st


def rows(table):
    return [pytest.param(*row, id=f"{kind}-{i}") for kind, rows in table.items() for i, row in enumerate(rows)]


@pytest.mark.parametrize(("answer", "gold"), rows(cases.EQUAL))
def test_equal_answers_are_correct(answer, gold):
    assert verify(rf"So it is $\boxed{{{answer}}}$.", gold).status == "correct"
    assert verify(rf"So it is $\boxed{{{gold}}}$.", gold).status == "correct"


@pytest.mark.parametrize(("answer", "gold"), rows(cases.UNEQUAL))
def test_other_answers_earn_nothing_and_stay_valid(answer, gold):
    assert verify(rf"So it is $\boxed{{{answer}}}$.", gold).reward == 0.0


@pytest.mark.parametrize(("gold", "given"), [("5 kHz", "5 Hz"), ("20°C", "20°F"), ("5 cm", "5%"), ("$5", "£5")])
def test_units_are_not_looked_at_where_a_policy_says_so(gold, given):
    assert verify(rf"\boxed{{{given}}}", gold, units="ignore").status == "correct"
    assert verify(rf"\boxed{{{given}}}", gold, units="required").status == "incorrect"


def test_a_symbol_in_its_own_case_is_one_unit():
    assert measures.canonical("mW") == "milliwatt"
    assert measures.canonical("MW") == "megawatt"
    assert not measures.is_measure("mw")
    assert measures.canonical("khz") == measures.canonical("kHz") == "kilohertz"


@pytest.mark.parametrize(
    ("one", "other"),
    [("m/s^2", "meters per second squared"), ("km h^{-1}", "kph"), ("J/(kg K)", "joules per kilogram per kelvin")],
)
def test_a_compound_unit_is_a_product_of_powers(one, other):
    assert measures.canonical(one) == measures.canonical(other)


def test_quantities_in_parts_are_exact():
    assert in_parts("45^\\circ 30' 36''") == (Fraction(4551, 100), "degree")
    assert in_parts("1 hour and 30 minutes") == (Fraction(3, 2), "hour")
    assert in_parts("1 hour 75 minutes") is None
    assert in_parts("5 cm 3 kg") is None


@settings(deadline=None)
@given(st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**6), st.integers(10, 25))
def test_a_decimal_of_ten_digits_is_the_fraction_that_it_rounds(value, decimals):
    scaled = abs(value) * 10**decimals + Fraction(1, 2)
    digits = str(scaled.numerator // scaled.denominator).rjust(decimals + 1, "0")
    text = f"{'-' * (value < 0)}{digits[:-decimals]}.{digits[-decimals:]}"
    is_long = len(digits.lstrip("0")) >= numerals.MIN_DIGITS
    off = str(int(digits) + 3).rjust(decimals + 1, "0")
    wrong = f"{'-' * (value < 0)}{off[:-decimals]}.{off[-decimals:]}"
    assert numerals.rounds(text, value) == (is_long and not _terminates(value))
    assert not numerals.rounds(wrong, value) or len(off.lstrip("0")) >= 16


def _terminates(value):
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


@pytest.mark.parametrize(
    "text", ["[1,2]", "f(x)", "[[1,2],[3,4]]", r"\sqrt[3]{2}", "(1,2)", "]", "[", "]1[", "[1,[2,3]]"]
)
def test_brackets_that_face_inwards_stay(text):
    assert in_one_notation(text) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("]1,2[", "(1,2)"),
        ("[1,2[", "[1,2)"),
        (r"]\sqrt[3]{2},f(2)[", r"(\sqrt[3]{2},f(2))"),
        ("[0,1[u]2;3]", "[0,1)u(2;3]"),
    ],
)
def test_brackets_that_face_away_leave_their_end_out(text, same):
    assert in_one_notation(text) == same


@pytest.mark.parametrize(
    ("answer", "gold", "status"),
    [
        (r"x \ne 2", r"\text{all real numbers except } 2", "correct"),
        (r"(-\infty,0)\cup(0,\infty)", "all reals except 0", "correct"),
        (r"\mathbb{R}\setminus\{0,1\}", r"\text{All real numbers except }0\text{ and }1", "correct"),
        (r"\mathbb{R}", r"\text{all real numbers except } 2", "incorrect"),
        ("2", r"\text{all real numbers except } 2", "incorrect"),
    ],
)
def test_a_gold_may_say_what_it_leaves_out(answer, gold, status):
    assert verify(rf"\boxed{{{answer}}}", gold).status == status


@pytest.mark.parametrize(("answer", "gold"), rows(cases.EQUAL))
def test_an_answer_without_a_value_does_not_spare_the_program(answer, gold):
    without_value = re.sub(r"\d+", r"\\frac{1}{0}", answer, count=1)
    assert verify(rf"\boxed{{{without_value}}}", gold).valid


PIECES = (  # noqa: SIM905
    r"\pm \mp \cup \cap \setminus { } ( ) [ ] ]1,2[ \{ \} < > = \ne \in x y i j k 1 2 0.3333333333 .3 ... 1'000 _000 "
    r", ; : \text{ cm km/h °C °F % ‰ $ € £ ° ' ^\circ ^T \prime \mu \Omega kΩ \hat{i} \vec{j} or and except to "
    r"\begin{pmatrix} \end{pmatrix} \\ & ½ ∅ Ø none dne"
).split()


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from([*PIECES, " ", "all real numbers ", "no solution ", " 5 ft "]), max_size=15).map("".join)
)
def test_no_form_breaks_its_reader(text):
    with contextlib.suppress(LimitError):
        assert readings(text)


@pytest.mark.parametrize("answer", [r"\infty", r"\lim_{x\to\infty}x", r"\sum_{n=1}^\infty n"])
@pytest.mark.parametrize("gold", [r"\infty", r"\lim_{x\to\infty}x", r"\sum_{n=1}^\infty n"])
def test_infinities_of_one_sign_are_equal(answer, gold):
    assert verify(rf"\boxed{{{answer}}}", gold).status == "correct"


ANSWERS = ["5", r"\sum_{k=1}^{9}k", r"\int_0^1 x dx", "x", "(1,2)", "9^{9^9}", "5 kg", "x=5", r"\ln 0", r"\text{no}"]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("gold", ["9^{9^9}", r"\sin(9^{9^{9^9}})", r"\frac{1}{9^{9^{9}}}", r"\infty"])
def test_no_answer_decides_whether_its_sample_counts(answer, gold):
    assert verify(rf"\boxed{{{answer}}}", gold).valid


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("gold", [r"\ln 0", r"\infty-\infty", r"x+\infty", r"(1,\ln 0)", r"\frac{\pi}{0}"])
def test_a_gold_without_a_value_is_invalid_for_every_answer(answer, gold):
    assert verify(rf"\boxed{{{answer}}}", gold).status == "gold_invalid"
    assert verify(rf"\boxed{{{gold}}}", gold).status == "gold_invalid"

"""The generator is endless, the same for the same seed, and never trains on what it tests."""
# ruff: noqa: RUF001  (the sign that is meant)

import random
import re

import pytest
from agentrl_math import verify
from agentrl_math.generator import DIGITS, LEVELS, held_out_pairs, held_out_problems, is_held_out, problem

HELD_OUT_PAIRS = ((2, 2), (2, 3), (2, 8), (3, 3), (3, 9), (4, 6), (5, 7), (7, 9), (9, 9))


def drawn(level, count, seed=0):
    return [problem(level, random.Random(f"{seed}/{i}")) for i in range(count)]


@pytest.mark.parametrize("level", LEVELS)
def test_train_and_held_out_share_no_problem(level):
    test = held_out_problems(level)
    assert not {p.question for p in test} & {p.question for p in drawn(level, 3000)}
    assert not {p.key for p in test} & {p.key for p in drawn(level, 3000, seed=1)}
    assert all(is_held_out(level, p.key) for p in test)


def test_level_one_holds_out_a_quarter_of_the_unordered_pairs_in_both_orders_and_operations():
    pairs = held_out_pairs()
    assert len(pairs) == 9
    questions = {p.question for p in held_out_problems(1)}
    for a, b in pairs:
        assert {f"What is {x} {s} {y}?" for x, y in ((a, b), (b, a)) for s in "+×"} <= questions
    for p in drawn(1, 5000):
        a, b = (int(n) for n in re.findall(r"\d+", p.question))
        assert (min(a, b), max(a, b)) not in pairs
        assert {a, b} <= set(DIGITS)


def test_level_one_trains_on_all_the_other_pairs():
    seen = {p.key for p in drawn(1, 5000)}
    assert len(seen) == 27


def test_the_held_out_problems_never_change():
    assert held_out_pairs() == HELD_OUT_PAIRS
    assert len(held_out_problems(1)) == 30


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_seed_gives_the_same_task_at_every_index(level):
    assert drawn(level, 50) == drawn(level, 50)
    assert drawn(level, 50) != drawn(level, 50, seed=1)


@pytest.mark.parametrize("level", LEVELS)
def test_the_answers_are_right_and_graded(level):
    for p in drawn(level, 200) + held_out_problems(level):
        if level < 4:
            text = p.question.removeprefix("What is ").rstrip("?").replace("×", "*")
            assert re.fullmatch(r"[\d+\-*() ]+", text)
            assert eval(text) == int(p.answer)  # noqa: S307  (our own digits)
        assert verify(f"The answer is {p.answer}.", p.answer, form="value").status == "correct"
        assert verify(f"The answer is {int(p.answer) + 1}.", p.answer, form="value").status == "incorrect"

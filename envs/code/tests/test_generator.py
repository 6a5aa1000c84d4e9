"""The generator is endless, the same for the same seed, and never trains on what it tests."""

import random

import pytest
from agentrl_code import Call
from agentrl_code.generator import HIDDEN, LEVELS, PUBLIC, TEST_SIZE, held_out_problems, is_held_out, problem

FIRST = [
    "8 * x - 9",
    "the distance between 4 times x and 2 times y",
    "the largest (0 if there are none) of the elements of xs that are less than 4, each squared",
    "the largest (0 if there are none) of the elements of xs that are not divisible by 4, each squared",
]


def drawn(level, count, seed=0):
    return [problem(level, random.Random(f"{seed}/{i}")) for i in range(count)]


@pytest.mark.parametrize("level", LEVELS)
def test_train_and_held_out_share_no_problem(level):
    test = held_out_problems(level)
    assert 50 < len(test) <= TEST_SIZE
    assert all(is_held_out(level, p.key) for p in test)
    assert not {p.question for p in test} & {p.question for p in drawn(level, 500)}


def test_the_held_out_problems_never_change():
    assert [held_out_problems(level)[0].key for level in LEVELS] == FIRST


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_seed_gives_the_same_problem(level):
    assert drawn(level, 20) == drawn(level, 20)
    assert drawn(level, 20) != drawn(level, 20, seed=1)


@pytest.mark.parametrize("level", LEVELS)
def test_hidden_tests_differ_from_public_ones_and_no_constant_passes_half_of_them(level):
    for p in drawn(level, 100) + held_out_problems(level):
        assert (len(p.public), len(p.hidden)) == (PUBLIC, HIDDEN)
        tests = p.public + p.hidden
        inputs = [repr(t.args) if isinstance(t, Call) else t.stdin for t in tests]
        assert len(set(inputs)) == len(tests)
        wanted = [t.expected if isinstance(t, Call) else t.expected_stdout for t in p.hidden]
        assert max(map(wanted.count, wanted)) <= HIDDEN // 2


async def test_every_solution_passes_its_tests(grade):
    for level in LEVELS:
        for p in drawn(level, 10):
            verdict = await grade(p.solution, *p.public, *p.hidden)
            assert verdict.status == "passed", (p.question, verdict.reason)

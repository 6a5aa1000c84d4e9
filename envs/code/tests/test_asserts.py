"""Test code means what Python means by it, and the program decides nothing but its own values."""

import pytest
from agentrl_code import Assert
from agentrl_code.claims import Claim, Script, plan

SUM = "def sum(a, b): return a + b\n"
STACK = """
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item)
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __eq__(self, other): return True
class Node:
    def __init__(self, value): self.value, self.left = value, None
def depth(node): return 0 if node is None else 1 + depth(node.left)
def count(n):
    yield from range(n)
def forever():
    while True: yield 1
def fails(x): raise ValueError(f"bad {x}")
class OwnError(Exception): pass
def fails_so(x): raise OwnError("mine")
def same(x): return x
def grow(xs, x): xs.append(x)
def first(xs): return xs.pop(0)
def fill(d): d["k"] = 1
"""

HOLD = [
    "assert same(2) == 2",
    "assert same(True) == 1",
    "assert 1.0 == same(1)",
    "assert same(None) is None and same(0) is not None",
    "assert not same(0)",
    "assert same([1]) != [2]",
    "assert 3 in same([3])",
    "assert 2 < same(3) < 4",
    "assert abs(same(1.0) - 1.0000001) < 1e-3",
    "assert round(same(1.234), 1) == 1.2",
    "assert isinstance(same([]), list), 'a message'",
    "import math\nassert math.isclose(same(1), 1)",
    "assert math.floor(same(1.5)) == 1",
    "for i in range(5):\n    assert same(i) == i",
    "def helper(x):\n    return x + 1\nassert helper(same(1)) == 2",
    "def check(candidate):\n    assert candidate(1) == 1\n    assert True\ncheck(same)",
    "def check(candidate):\n    x = [1]\n    assert candidate(x) == x\ncheck(same)",
    "s = Stack()\ns.push(4)\ns.push([5])\nassert len(s) == 2 and s.pop() == [5]",
    "n = Node(1)\nn.left = Node(2)\nassert depth(n) == 2 and n.left.value == 2",
    "assert depth(None) == 0",
    "assert list(count(3)) == [0, 1, 2]",
    "assert [x for x in count(2)] == [0, 1]",
    "assert next(forever()) == 1",
    "from itertools import islice\nassert list(islice(forever(), 3)) == [1, 1, 1]",
    "try:\n    fails(1)\nexcept ValueError as error:\n    assert str(error) == 'bad 1'\nelse:\n    assert False",
    "try:\n    fails_so(1)\nexcept Exception as error:\n    assert 'OwnError' in str(error)",
    "xs = []\ngrow(xs, 1)\ngrow(xs, 2)\nassert xs == [1, 2]",
    "d = {}\nfill(d)\nassert d == {'k': 1}",
    "xs = [1]\nassert same(xs) == [1]\ngrow(same, 1) if False else None\nassert xs == [1]",
    "assert same(int) is int",
]
BREAK = [
    "assert same(2) == 3",
    "assert same(1) == 1\nassert same(2) == 3",
    "assert [same(2)] == [3]",
    "assert same(None) < 3",
    "assert Stack() == Stack()",
    "assert [Stack()] == [1]",
    "assert Stack()",
    "assert not Stack()",
    "assert Stack() in [1]",
    "assert {Stack(): 1}",
    "assert count(3) == [0, 1, 2]",
    "assert fails(1) == 1",
    "try:\n    assert Stack() == 1\nexcept Exception:\n    assert same(1) == 1",
    "xs = [1]\nassert first(xs) == 1\nassert xs == []",
    "def check(candidate):\n    assert candidate(1) == 2\ncheck(same)",
    "assert list(forever()) == [1]",
]


@pytest.mark.parametrize("source", HOLD)
async def test_what_holds_in_python_holds_here(grade, source):
    verdict = await grade(STACK, Assert(source))
    assert verdict.status == "passed", verdict


@pytest.mark.parametrize("source", BREAK)
async def test_what_does_not_hold_or_asks_the_program_to_judge_fails(grade, source):
    verdict = await grade(STACK, Assert(source), timeout_s=1)
    assert verdict.reward == 0.0, verdict


async def test_in_place_calls_may_be_asked_for(grade):
    source = "xs = [3, 1]\nk = first(xs)\nassert k == 3 and xs == [1]"
    assert (await grade(STACK, Assert(source))).status == "failed"
    assert (await grade(STACK, Assert(source, in_place=True))).status == "passed"


async def test_a_program_cannot_replace_what_the_tests_use(grade):
    program = """
def abs(x): return 0
def sorted(x): return [1]
def isinstance(*a): return True
def helper(x): return 1
class math:
    fabs = staticmethod(lambda x: 0)
    isclose = staticmethod(lambda *a: True)
def f(x): return 7.0
"""
    setup = "import math\ndef helper(x):\n    return x"
    for source in (
        "assert abs(f(1) - 5) < 1e-6",
        "assert math.isclose(f(1), 5)",
        "assert sorted([f(1)]) == [1]",
        "assert isinstance(f(1), str)",
        "assert helper(f(1)) == 1",
        "assert math.fabs(f(1) - 5) < 1",
    ):
        assert (await grade(program, Assert(source), setup=setup)).status == "failed", source


async def test_an_entry_may_have_the_name_of_a_builtin(grade):
    test = Assert("assert sum(10, 15) == 25")
    assert (await grade(SUM, test, entry="sum")).status == "passed"
    assert (await grade("def sum(a, b): return a", test, entry="sum")).status == "failed"
    assert (await grade(SUM, test)).status != "passed"  # Python's own, which takes no two numbers


async def test_the_setup_helps_the_tests_and_calls_the_entry_of_the_program(grade):
    setup = "def twice(x):\n    return [f(x), f(x)]\ndef f(x):\n    '''The stub of the question.'''"
    test = Assert("def check(candidate):\n    assert twice(2) == [4, 4] and candidate(3) == 6\ncheck(f)")
    assert (await grade("def f(x): return 2 * x", test, entry="f", setup=setup)).status == "passed"
    assert (await grade("def f(x): return 3 * x", test, entry="f", setup=setup)).status == "failed"


async def test_the_first_assertion_that_fails_is_told(grade):
    verdict = await grade(STACK, Assert("x = same(1)\nassert x == 1\nassert x == 2"))
    assert verdict.feedback == "`assert x == 2`: does not hold."
    verdict = await grade(STACK, Assert("assert same('a') == 'b'"))
    assert verdict.feedback == "same('a'): gave 'a', but 'b' was expected."
    verdict = await grade(STACK, Assert("assert [Stack()] == [1]"))
    assert verdict.feedback == (
        "`assert [Stack()] == [1]`: the program gave an object of its own type Stack, which is not compared."
    )


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("assert f([1, -2], k='a') == {1: (2, None)}", Claim),
        ("def check(candidate):\n    assert candidate(1) == 1\nMETADATA = {}\ncheck(f)", Claim),
        ("assert f(1) is None", Claim),
        ("assert 1 == f(2)", Claim),
        ("assert f(1) is 5", Script),
        ("assert f(x) == 1", Script),
        ("assert abs(1) == 1", Script),
        ("assert g.f(1) == 1", Script),
        ("assert f(1) == f(2)", Script),
        ("assert f(*[1]) == 1", Script),
        ("assert f(...) == 1", Script),
        ("f = 5\nassert f(1) == 1", Script),
        ("def check(c):\n    assert c(1) == 1\ncheck(abs)", Script),
    ],
)
def test_only_a_call_compared_with_a_constant_goes_without_a_judge(source, kind):
    found = plan(source, "", "", False)
    assert isinstance(found, Script) if kind is Script else all(isinstance(each, Claim) for each in found)

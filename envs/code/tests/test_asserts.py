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
    "try:\n    fails_so(1)\nexcept Exception as error:\n    assert type(error).__name__ + str(error) == 'OwnErrormine'",
    "xs = []\ngrow(xs, 1)\ngrow(xs, 2)\nassert xs == [1, 2]",
    "d = {}\nfill(d)\nassert d == {'k': 1}",
    "xs = [1]\ngrow(xs=xs, x=2)\nassert xs == [1, 2]",
    "xs = [1]\ngrow(x=[2], xs=xs)\nassert xs == [1, [2]]",
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
async def test_an_assertion_that_holds_in_python_holds_here(grade, source):
    verdict = await grade(STACK, Assert(source))
    assert verdict.status == "passed", verdict


@pytest.mark.timeout(240)  # one of them is endless
@pytest.mark.parametrize("source", BREAK)
async def test_a_false_assertion_or_one_that_the_program_decides_fails(grade, source):
    verdict = await grade(STACK, Assert(source), timeout_s=1)
    assert verdict.reward == 0.0, verdict


OBJECTS = """
import abc, asyncio, contextlib, copy, enum
from collections import namedtuple
from typing import Protocol
class OwnError(ValueError):
    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code
class Node:
    "A node."
    count = 0
    def __init__(self, value): self.value, self.parts = value, {}
    def __repr__(self): return f"Node({self.value})"
    def __getitem__(self, key): return self.parts[key]
    def __setitem__(self, key, part): self.parts[key] = part
    def __delitem__(self, key): del self.parts[key]
    def __contains__(self, key): return key in self.parts
    def __enter__(self):
        self.value = "open"
        return self
    def __exit__(self, *_): self.value = "closed"
    def __add__(self, other): return Node(self.value + (other.value if isinstance(other, Node) else other))
    __radd__ = __add__
class Leaf(Node): pass
class Plain: pass
class Sized_(abc.ABC): pass
Sized_.register(Plain)
class Color(enum.Enum): RED, BLUE = 1, 2
Point = namedtuple("Point", "x y")
MOST = 7
class Text:
    def __init__(self, text): self.text = text
    def startswith(self, text): return self.text.startswith(text)
    def index(self, text): return self.text.index(text)
def text(text): return Text(text)
def node(value): return Node(value)
def leaf(value): return Leaf(value)
def plain(): return Plain()
def red(): return Color.RED
def point(): return Point(1, 2)
def keys(): return {"a": 1}.keys()
def fails(): raise OwnError("oh", 7)
def misses(): raise KeyError("oh")
def count(n): yield from range(n)
async def later(x): return x + 1
def same(x):
    "Gives it back."
    return x
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("assert isinstance(node(1), Node)", "assert isinstance(node(1), Leaf)"),
        ("assert isinstance(leaf(1), Node) and issubclass(Leaf, Node)", "assert issubclass(Node, Leaf)"),
        ("assert isinstance(plain(), Sized_)", "assert isinstance(node(1), Sized_)"),
        ("assert type(node(1)) is Node and not isinstance(5, Node)", "assert type(leaf(1)) is Node"),
        ("assert type(node(1)).__name__ == 'Node'", "assert type(node(1)).__name__ == 'Remote'"),
        ("assert node(1).__class__.__name__ == 'Node'", "assert node(1).__class__.__name__ == 'Leaf'"),
        ("assert repr(node(1)) == str(node(1)) == f'{node(1)}' == 'Node(1)'", "assert repr(node(1)) == 'Node(2)'"),
        ("n = Node(1)\nn[0] = 5\nassert n[0] == 5", "n = node(1)\nn[0] = 5\nassert n[0] == 5"),
        ("n = Node(1)\nn[0] = 5\ndel n[0]\nassert n.parts == {}", "n = Node(1)\nn[0] = 5\nassert n.parts == {}"),
        ("n, m = Node(1), node(2)\nn[m] = 5\nassert m in n and n not in n", "n, m = node(1), node(2)\nassert m in n"),
        ("with node(1) as n:\n    assert n.value == 'open'\nassert n.value == 'closed'",
         "with node(1) as n:\n    assert n.value == 'closed'"),
        ("n = node(1)\nn.value = 2\ndel n.value\nassert not hasattr(n, 'value')", "assert hasattr(node(1), 'other')"),
        ("try:\n    fails()\nexcept OwnError as e:\n    assert (str(e), e.code, e.args) == ('oh', 7, ('oh',))",
         "try:\n    misses()\nexcept OwnError:\n    assert same(1) == 1"),
        ("try:\n    fails()\nexcept ValueError as e:\n    assert type(e).__name__ == 'OwnError'",
         "try:\n    fails()\nexcept KeyError:\n    assert same(1) == 1"),
        ("try:\n    raise OwnError('so')\nexcept OwnError as e:\n    assert e.code == 3",
         "raise OwnError\nassert same(1)"),
        ("assert point() == (1, 2)", "assert point() == (1, 3)"),
        ("p = point()\nassert p == (1, 2) and p.x == 1 and isinstance(p, (tuple, Point)) and p._replace(x=5) == (5, 2)",
         "p = point()\nassert p.y == 1"),
        ("assert [point()] == [(1, 2)] and repr(point()) == 'Point(x=1, y=2)'", "assert [point()] == [[1, 2]]"),
        ("assert keys() == {'a'}", "assert keys() == {'b'}"),
        ("assert sorted(keys()) == ['a'] and {'a'} == keys()", "assert [keys()] == [['a']]"),
        ("assert same.__name__ == 'same'", "assert same.__name__ == 'f'"),
        ("assert same.__doc__ == 'Gives it back.' and Node.__doc__ == 'A node.'", "assert not same.__doc__"),
        ("import types\nassert isinstance(count(3), types.GeneratorType)",
         "import types\nassert isinstance(point(), types.GeneratorType)"),
        ("import inspect\nassert inspect.isgeneratorfunction(count)",
         "import inspect\nassert inspect.isgeneratorfunction(same) or same(0)"),
        ("import asyncio\nassert asyncio.run(later(1)) == 2", "import asyncio\nassert asyncio.run(later(1)) == 3"),
        ("assert callable(same) and callable(Node) and same(1)", "assert callable(plain())"),
        ("assert not hasattr(plain(), '__iter__') and hasattr(count(1), '__iter__')",
         "assert hasattr(plain(), '__iter__')"),
        ("from collections.abc import *\nassert isinstance(count(1), Iterator) and isinstance(node(1), Container)",
         "from collections.abc import *\nassert isinstance(plain(), Iterable)"),
        ("from collections.abc import *\nassert not isinstance(plain(), (Sized, Iterable, Callable)) or not same(1)",
         "from collections.abc import *\nassert isinstance(plain(), Sized)"),
        ("assert MOST == 7", "assert MOST == 8"),
        ("assert red() is Color.RED and red() == Color.RED != Color.BLUE", "assert red() is Color.BLUE"),
        ("assert len(Color) == 2 and Color['RED'] is red() and [c.value for c in Color] == [1, 2]",
         "assert red() == 1"),
        ("assert {red(): 1}[Color.RED] == 1", "assert {node(1): 1}[node(1)] == 1"),
        ("assert (node(1) + node(2)).value == 3", "assert plain() + plain() == 2"),
        ("import copy\nn = node(1)\nm = copy.deepcopy(n)\nm.value = 9\nassert n.value == 1",
         "import copy\nn = node(1)\nm = copy.copy(n)\nm.value = 9\nassert n.value == 9"),
        ("import copy\nn = node(1)\nm = copy.copy(n)\nm.value = 9\nassert (n.value, m.value) == (1, 9)",
         "import copy\nn = node(1)\nm = copy.copy(n)\nassert m is n"),
        ("Node.count = 5\nassert node(1).count == 5", "assert node(1).count == 5"),
        ("assert plain()", "assert not plain()"),
        ("n = node(node(0))\nwhile n.value:\n    n = n.value\nassert n.value == 0", "assert not node(1)"),
        ("assert bool(plain()) is True and (not red()) is False", "assert plain() == True"),
        ("t = Text('abc')\nassert t.startswith('a') and t.index('b') == 1", "assert Text('abc').startswith('b')"),
        ("t = text('abc')\nassert isinstance(t, Text) and t.startswith('a')", "assert text('abc').startswith('a')"),
        ("x: int = same(1)\nassert x == 1", "x: int = same(1)\nassert x == 2"),
    ],
)  # fmt: skip
async def test_what_an_object_is_and_can_do_is_asked_of_it(grade, right, wrong):
    assert (await grade(OBJECTS, Assert(right))).status == "passed"
    verdict = await grade(OBJECTS, Assert(wrong))
    assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict


@pytest.mark.parametrize(
    "source",
    [
        "assert same(1) == 1\nassert same(lambda: 1) == 5",
        "assert same(1) == 1\nassert same(map(str, [1])) == 1",
        "class Own(Node): pass\nassert Own(1).value == 1",
        "class Own: pass\nassert same(1) == 1 and same(Own())",
        "same\nwhile True: pass\nassert same(0)",
        "def check(candidate):\n    assert 1 + 1 == 2\ncheck(same)",
    ],
)
async def test_a_test_that_no_program_could_pass_is_the_tasks_fault(grade, source):
    verdict = await grade(OBJECTS, Assert(source), timeout_s=1)
    assert (verdict.status, verdict.fault) == ("invalid", "task"), verdict
    if "same(1)" in source:
        verdict = await grade("def same(x): return 2", Assert(source), timeout_s=1)
        assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict


ERRORS = """
import dataclasses, decimal, json, subprocess
class OwnError(OSError): pass
class OfJson(json.JSONDecodeError): pass
def decode(text): return text.decode()
def parse(text): return json.loads(text)
def parse_so(text): raise OfJson("no", text, 3)
def read(path): return open(path)
def decimal_of(text): return decimal.Decimal(text)
def leave(code): raise SystemExit(code)
def look(key): return {}[key]
def own(path): raise OwnError(path)
def run(command): return subprocess.run([command], check=True)
def two(*args): raise ValueError(*args)
def change():
    point = dataclasses.make_dataclass("P", ["x"], frozen=True)(1)
    point.x = 2
def count():
    yield 1
    return 7
"""


@pytest.mark.parametrize(
    ("call", "caught", "right", "wrong"),
    [
        ("decode(b'\\xff')", "UnicodeDecodeError", "e.reason == 'invalid start byte'", "e.start == 1"),
        ("decode(b'\\xff')", "ValueError", "e.object == b'\\xff'", "e.object == b''"),
        ("parse('{')", "json.JSONDecodeError", "e.pos == 1", "e.pos == 0"),
        ("parse_so('{')", "json.JSONDecodeError", "(e.msg, e.pos) == ('no', 3)", "e.pos == 1"),
        ("parse_so('{')", "ValueError", "type(e).__name__ == 'OfJson'", "str(e) == 'no'"),
        ("decimal_of('a')", "decimal.InvalidOperation", "isinstance(e, ArithmeticError)", "str(e) == 'a'"),
        ("change()", "dataclasses.FrozenInstanceError", "isinstance(e, AttributeError)", "str(e) == 'x'"),
        ("run('false')", "subprocess.CalledProcessError", "e.returncode == 1", "e.returncode == 0"),
        ("leave(3)", "SystemExit", "e.code == 3", "e.code == '3'"),
        ("look(5)", "KeyError", "e.args == (5,)", "e.args == ('5',)"),
        ("look((1, 2))", "LookupError", "e.args == ((1, 2),)", "e.args == (1, 2)"),
        ("read('/no')", "FileNotFoundError", "e.errno == errno.ENOENT", "e.errno == errno.EPERM"),
        ("own('/no')", "OwnError", "isinstance(e, OSError) and str(e) == '/no'", "e.args == ()"),
        ("two('a', 2.5)", "ValueError", "e.args == ('a', 2.5)", "str(e) == 'a, 2.5'"),
        ("[*map(next, [g := count()]), next(g)]", "StopIteration", "e.value == 7", "e.value is None"),
    ],
)  # fmt: skip
async def test_an_error_of_the_program_keeps_its_type_and_arguments(grade, call, caught, right, wrong):
    modules = "import dataclasses, decimal, errno, json, subprocess"
    source = f"{modules}\ntry:\n    {call}\nexcept {caught} as e:\n    assert "
    other = "\nelse:\n    assert not look"
    assert (await grade(ERRORS, Assert(source + right + other))).status == "passed"
    assert (await grade(ERRORS, Assert(source + wrong + other))).reward == 0.0
    raising = "import unittest\ndef look(key): raise unittest.SkipTest\n"
    verdict = await grade(ERRORS + raising, Assert("import unittest\ntry:\n    look(1)\nexcept unittest.SkipTest:\n"
                          "    assert look"))  # fmt: skip
    assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict


async def test_a_test_catches_errors_of_a_library_that_it_has_not_imported(grade):
    test = Assert("try:\n    parse('{')\nexcept ValueError as e:\n    assert e.pos == 1\nelse:\n    assert not parse")
    assert (await grade(ERRORS, test)).status == "passed"
    assert (await grade("def parse(text): raise KeyError", test)).status == "error"


async def test_a_test_may_ask_in_several_threads(grade):
    test = Assert("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool:\n"
                  "    assert list(pool.map(f, range(99))) == [2 * x for x in range(99)]")  # fmt: skip
    assert (await grade("def f(x): return 2 * x", test)).status == "passed"
    assert (await grade("def f(x): return 2 * x if x != 77 else 0", test)).status == "failed"


@pytest.mark.timeout(240)
async def test_the_time_of_questions_is_not_charged_to_the_program(grade):
    loop = "for i in range(3000):\n    assert f(i) == i"
    assert (await grade("def f(x): return x", Assert(loop), timeout_s=4)).status == "passed"
    verdict = await grade("import time\ndef f(x):\n    time.sleep(0.3)\n    return x", Assert(loop), timeout_s=0.5)
    assert (verdict.status, verdict.fault) == ("error", "program")
    verdict = await grade("def f(x):\n    for _ in range(10 ** 6): pass\n    return x", Assert(loop), timeout_s=0.5)
    assert (verdict.status, verdict.fault) == ("error", "program")


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


SORTS = """
class Solution:
    def sort(self, xs): xs.sort()
    def twice(self, xs): return [2 * x for x in xs]
def checked(x):
    if x < 0: raise ValueError("negative")
    return x
def loose(x): return x
"""
UNITTEST = """
import unittest
class TestTwice(unittest.TestCase):
    def setUp(self):
        self.solution = Solution()
    def test_values(self):
        self.assertEqual(self.solution.twice([1, 2]), [2, 4])
    def test_error(self):
        with self.assertRaises(ValueError):
            checked(-1)
if __name__ == "__main__":
    unittest.main()
"""
STYLES = {
    "a method changes its argument": ("xs = [2, 1]\nSolution().sort(xs)\nassert xs == [1, 2]", "xs.sort()", "pass"),
    "an error is expected, or else": (
        "try:\n    checked(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False", "raise", "print"),
    "an error is expected": (
        "try:\n    checked(-1)\n    assert False\nexcept ValueError as e:\n    pass", "raise", "print"),
    "functions of pytest": ("def test_twice():\n    assert Solution().twice([3]) == [6]", "2 * x", "3 * x"),
    "an import of the program": (
        "from solution import checked\nimport solution\nassert solution.checked(3) == checked(3) == 3",
        "return x\ndef l", "return 4\ndef l"),
    "classes of unittest": (UNITTEST, "2 * x", "x"),
    "classes of unittest, an error": (UNITTEST, "raise", "print"),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
async def test_tests_are_run_in_the_style_they_are_written_in(grade, style):
    source, right, wrong = STYLES[style]
    assert (await grade(SORTS, Assert(source))).status == "passed"
    assert right in SORTS
    assert (await grade(SORTS.replace(right, wrong), Assert(source))).reward == 0.0


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    checked(-1)\n    assert False\nexcept Exception:\n    pass",
        "def test_twice(fixture):\n    assert checked(3) == fixture",
        "def test_never():\n    pass\nx = checked(1)\nassert True",
        "checked(1)\nassert False",
    ],
)
async def test_a_test_that_asserts_nothing_of_the_program_gives_no_point(grade, source):
    verdict = await grade(SORTS, Assert(source))
    assert (verdict.status, verdict.fault, verdict.reward) == ("invalid", "task", None)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("assert f([1, -2], k='a') == {1: (2, None)}", Claim),
        ("def check(candidate):\n    assert candidate(1) == 1\nMETADATA = {}\ncheck(f)", Claim),
        ("assert f(1) is None", Claim),
        ("assert 1 == f(2)", Claim),
        ("assert f(3 * 19, [-1 ** 2, 'a' + 'b']) == (2.0 / 3, -(2 ** 10) // 7 % 5, 1 + 2j)", Claim),
        ("assert abs(f(1.33) - 0.33) < 1e-6", Claim),
        ("def check(candidate):\n    assert abs(-1 / 3 - candidate(1)) <= 1 / 8\ncheck(f)", Claim),
        ("assert f(1 / 0) == 1", Script),
        ("assert f(9 ** 9 ** 9) == 1", Script),
        ("assert f('a' * 3) == 1", Script),
        ("abs = len\nassert abs(f(1) - 1) < 2", Script),
        ("assert abs(f(1) - f(2)) < 2", Script),
        ("assert abs(f(1) - 1, 2) < 2", Script),
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

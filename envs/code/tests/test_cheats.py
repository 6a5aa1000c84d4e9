"""Programs that try to get a point, or to get out of a zero, by another way than a right answer."""

import signal
import textwrap
from decimal import Decimal
from fractions import Fraction

import pytest
from agentrl_code import Assert, Call, Grader, Io, Policy
from agentrl_sandbox import LostError, Pool
from agentrl_sandbox.ordered import OrderedSandbox

CALLS = (Call("f", (1,), expected=5), Call("f", (2,), expected=8))
EVERY = (*CALLS, Assert("assert f(1) == 5"), Assert("assert [f(1)] == [5]"))
IO = (Io("4\n", "8\n"), Io("21", "42"))

# Each is wrong for every input, however it comes by its answer.
FUNCTIONS = {
    "a metaclass that makes int lie": """
        class Meta(type):
            __eq__ = lambda a, b: True
            __hash__ = lambda a: 0
            __instancecheck__ = lambda a, b: True
        class int(__import__("builtins").int, metaclass=Meta):
            __eq__ = lambda a, b: True
        def f(x): return int(0)
        """,
    "a class called int": "class int: __eq__ = lambda a, b: True\ndef f(x): return int()",
    "a list that equals": "class L(list): __eq__ = lambda a, b: True\ndef f(x): return L([5])",
    "a dict whose class lies": "class D(dict): __class__ = dict\ndef f(x): return D()",
    "a property called __class__": "class P: __class__ = property(lambda s: int)\ndef f(x): return P()",
    "reflected comparison": "class R(int):\n __req__ = __eq__ = lambda a, b: True\ndef f(x): return R(5)",
    "abs and friends replaced": "import builtins\nfor n in ('abs', 'len', 'sorted', 'isinstance', 'repr'):\n"
    " setattr(builtins, n, lambda *a, **k: True)\ndef f(x): return 0",
    "modules replaced": "import sys\nfor n in list(sys.modules): sys.modules[n] = None\ndef f(x): return 0",
    "type replaced": "import builtins\nbuiltins.type = lambda *a: int\ndef f(x): return None",
    "assertions off": "import sys\nsys.flags = None\n__debug__0 = False\ndef f(x): return 0",
    "AssertionError replaced": "import builtins\nbuiltins.AssertionError = KeyError\ndef f(x): return 0",
    "gc": "import gc\ndef f(x): return [o for o in gc.get_objects() if type(o) in (list, tuple) and 5 in o[:9]][:1]",
    "frames of all threads": """
        import sys
        def f(x):
            for frame in sys._current_frames().values():
                while frame:
                    for value in frame.f_locals.values():
                        if value in (5, 8): return value
                    frame = frame.f_back
        """,
    "a trace that edits results": "import sys\nsys.settrace(lambda *a: (_ for _ in ()).throw(SystemExit(0)))\n"
    "def f(x): return 0",
    "a profile that ends": "import os, sys\ndef f(x):\n sys.setprofile(lambda *a: os._exit(0))\n return 0",
    "an exit handler": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "a finaliser that leaves": "class B:\n def __del__(s): raise SystemExit(0)\ndef f(x):\n B()\n return 0",
    "BaseException": "class B(BaseException): pass\ndef f(x): raise B",
    "an exception class without a name": "B = type('', (Exception,), {})\ndef f(x): raise B",
    "GeneratorExit": "def f(x): raise GeneratorExit",
    "a fork that answers": "import os\ndef f(x):\n if os.fork() == 0: return 6\n os.wait()\n return 0",
    "a parent that leaves": "import os\ndef f(x):\n if os.fork(): os._exit(0)\n return 6",
    "every fd closed at loading": "import os\nos.closerange(0, 300)\ndef f(x): return 0",
    "every fd written": "import os\ndef f(x):\n for fd in range(40):\n  try: os.write(fd, b'5')\n"
    "  except OSError: pass\n return 0",
    "the order's pipe": "import os\nfor fd in (3, 4):\n try: os.write(fd, bytes(9))\n except OSError: pass\n"
    "def f(x): return 0",
    "recursion": "def f(x): return f(x + 1)",
    "recursion into C": "import sys\nsys.setrecursionlimit(10 ** 8)\ndef f(x): return f(x + 1)",
    "a huge int": "def f(x): return 1 << (1 << 26)",
    "a large int": "def f(x): return 1 << 100_000",
    "NaN": "def f(x): return float('nan')",
    "minus zero": "def f(x): return -0.0",
    "True": "def f(x): return True",
    "a float": "def f(x): return {1: 5.0, 2: 8.0}[x] + 1e-9",
    "a Decimal that signals": "from decimal import Decimal\ndef f(x): return Decimal('sNaN')",
    "an endless range": "def f(x): return range(10 ** 18)",
    "a Counter of objects": "from collections import Counter\nE = type('E', (), {})\n"
    "def f(x): return Counter({'a': E(), 'b': E()})",
    "surrogates": "def f(x): raise ValueError('\\ud800')",
    "a slow fraction": "from fractions import Fraction\nF = Fraction(3 ** 200_000, 2 ** 300_000)\ndef f(x): return F",
    "StopIteration": "def f(x): raise StopIteration",
    "a late thread": "import threading, time\ndef f(x):\n threading.Timer(0.05, lambda: 5).start()",
    "a default that grows": "def f(x, seen=[]):\n seen.append(x)\n return seen",
    "arguments read twice": "def f(*args, **kwargs): return args",
    "its own session": "import __main__\ndef f(x):\n __main__.candidate.serve = print\n return 0",
    "marshal replaced": "import marshal\nmarshal.loads = lambda b: [('call', 5)]\ndef f(x): return 0",
    "a codec": "import builtins\nbuiltins.exec = builtins.compile = lambda *a, **k: None\ndef f(x): return 0",
}  # fmt: skip

SCRIPTS = {
    "an exit handler that prints": "import atexit\natexit.register(print, 'no')\nprint(2 * int(input()))",
    "a child that prints": "import os\nif os.fork() == 0:\n print(9, flush=True)\n os._exit(0)\nos.wait()\n"
    "print(2 * int(input()))",
    "a forked twin": "import os\ntwin = os.fork()\nprint(2 * int(open(0).read() or 4), flush=True)\ntwin and os.wait()",
    "both answers": "print('8\\n42')",
    "an ending that is caught": "import sys\nprint(2 * int(input()))\nsys.exit(3)",
    "a signal": "import os\nprint(2 * int(input()), flush=True)\nos.kill(os.getpid(), 15)",
    "stdout closed": "import os\nx = 2 * int(input())\nos.close(1)\nprint(x)",
    "on stderr": "import sys\nprint(2 * int(input()), file=sys.stderr)",
    "to every fd": "import os\nfor fd in range(2, 40):\n try: os.write(fd, b'8')\n except OSError: pass",
    "NUL": "print(2 * int(input()), end='\\0')",
    "no Unicode": "import os\nos.write(1, b'\\xff8')",
    "a file of answers": "print(open('/tmp/answer').read())",
}


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_no_hostile_function_earns_a_point_or_is_spared(grade, name):
    verdict = await grade(textwrap.dedent(FUNCTIONS[name]), *EVERY, timeout_s=2)
    assert (verdict.reward or 0.0, verdict.share or 0.0, verdict.fault) == (0.0, 0.0, "program"), verdict
    verdict.feedback.encode()
    verdict.reason.encode()


@pytest.mark.parametrize("name", SCRIPTS)
async def test_no_hostile_script_earns_a_point_or_is_spared(grade, name):
    verdict = await grade(SCRIPTS[name], *IO, timeout_s=2)
    assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict


@pytest.mark.parametrize(
    ("program", "source"),
    [
        ("def f(x): raise StopIteration", "assert all(map(lambda x: f(x) == x, range(3)))"),
        ("def f(x): raise StopIteration", "assert list(iter(lambda: f(1), 5)) == []"),
        ("def f(x): return range(10 ** 18)", "assert 'a' in f(1)"),
        ("def f(x): return range(10 ** 18)", "assert 2.5 in f(1)"),
        ("class E:\n __eq__ = lambda a, b: True\ndef f(x): return E()",
         "try:\n    assert f(1) == 5\nexcept:\n    pass\nassert True or f(1)\nassert 1 < 2 + 1"),
        ("class Stop(StopIteration): pass\ndef f(x): raise Stop", "assert all(map(lambda x: f(x) == x, range(3)))"),
        ("class E:\n __class__ = int\n __eq__ = lambda a, b: True\ndef f(x): return E()", "assert [f(1)] == [5]"),
        ("class E:\n __contains__ = lambda a, b: True\ndef f(x): return E()", "assert f(1) in [5]"),
        ("class E:\n __radd__ = __add__ = lambda a, b: E()\ndef f(x): return E()", "assert 1 + f(1) == 6"),
        ("class E:\n def __exit__(self, *a): return True\n def __enter__(self): return 0\ndef f(x): return E()",
         "with f(1) as x:\n    assert x == 5"),
        ("from collections import namedtuple\nP = namedtuple('P', 'x')\nclass Q(P):\n __eq__ = lambda a, b: True\n"
         "def f(x): return Q(x)", "assert [f(1)] == [(5,)]"),
        ("async def f(x): return x", "assert [f(f(1))] == [5]"),
        ("def f(x): return x",
         "x = 0\nfor _ in range(99): x = [f(x)]\nassert x == 1"),
    ],
)  # fmt: skip
async def test_test_code_is_not_led_past_its_assertions(grade, program, source):
    verdict = await grade(program, Assert(source), timeout_s=2)
    assert (verdict.reward or 0.0, verdict.fault) == (0.0, "program"), verdict


async def test_a_test_that_the_program_keeps_from_asserting_is_the_programs_doing(grade):
    verdict = await grade("def f(): return []", Assert("for x in f():\n    assert x == 5"))
    assert (verdict.status, verdict.fault) == ("invalid", "program")
    verdict = await grade("def f(): return []", Assert("for x in []:\n    assert f() == 5"))
    assert (verdict.status, verdict.fault) == ("invalid", "task")


@pytest.mark.timeout(240)
async def test_a_test_that_the_program_makes_endless_takes_the_rest_along_and_stays_valid(grade):
    program = "def f(x):\n    while True: yield x\ndef g(x): return x\n"
    tests = Assert("assert list(f(1)) == [1]"), Assert("assert [g(1)] == [1]")
    verdict = await grade(program, *tests, timeout_s=0.5)
    assert verdict.valid, verdict
    assert [result.status for result in verdict.results] == ["failed", "error"]


async def test_a_decimal_that_signals_and_a_large_fraction_are_no_accidents(grade):
    tests = Call("f", expected=Decimal("1.5")), Call("g", expected=Fraction(1, 3))
    program = """
        from decimal import Decimal
        from fractions import Fraction
        def f(): return Decimal("sNaN")
        def g(): return Fraction(3 ** 20_000, 2 ** 30_000)
        """
    verdict = await grade(textwrap.dedent(program), *tests)
    assert [result.status for result in verdict.results] == ["failed", "failed"]


FORGED = """
import os, sys
def f(x):
    frame = sys._getframe()
    while "nonce" not in frame.f_locals:
        frame = frame.f_back
    for payload in {payloads!r}:
        sys.modules["agentrl_code.inside.candidate"].channel.say(frame.f_locals["nonce"], payload)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "payload",
    ['["value", ["Fraction", ["int", "0x{}"], ["int", "0x{}"]], null]'.format("7" * 900_000, "d" * 900_000),
     '["value", ["Decimal", "1E+999999999999999999"], null]', '["raised", "E", "\\ud800", 1, null, null]',
     '["value", ["ref", 1, "\\ud800"], null]', '["value", ["set", {}], null]'.format(",".join(["1e999"] * 9)),
     '["value", ["str"], null]', '["value", NaN, null]', '["raised", "StopIteration", "", 0, null, null]',
     '["value", ["named", 1, "\\ud800", 2, 5], null]', '["value", ["dict_keys", 5, 8], null]',
     '["value", ["class", 1, "E"], null]', '["value", ["named", 1], null]', '["value", ["NotImplemented"], null]',
     '["raised", "E", "", 0, 5, null]', '["raised", "E", "", 0, null, {}]'],
    ids=lambda payload: payload[:40],
)  # fmt: skip
async def test_forged_values_neither_block_nor_harm_the_reader(grade, payload):
    verdict = await grade(FORGED.format(payloads=[payload] * 2), *CALLS)
    assert verdict.fault == "program", verdict
    assert not verdict.reward
    verdict.feedback.encode()
    verdict.reason.encode()


async def test_an_unreadable_answer_is_the_programs_fault_and_no_tests_the_tasks(grade):
    verdict = await grade(FORGED.format(payloads=["["]), *CALLS)
    assert (verdict.status, verdict.reward, verdict.fault) == ("invalid", None, "program")
    for tests in ((), (Call("f", (1,)),), (Assert("assert True"),)):
        verdict = await grade("def f(x): return 5", *tests)
        assert (verdict.status, verdict.reward, verdict.fault) == ("invalid", None, "task")
    assert (await grade("def f(x): return 0", *CALLS)).fault == "program"
    assert (await grade("def f(x): return 3 * x + 2", *CALLS)).fault == ""


async def test_a_program_that_ruins_its_sandbox_is_not_spared(grade):
    ruin = "import os\nhere = os.getcwd()\nos.chdir('/')\nos.rmdir(here)\nopen(here, 'w').close()\n"
    verdict = await grade(f"{ruin}print(8)", *IO)
    assert verdict.reward == 0.0, verdict
    verdict = await grade(f"if __name__ == '__main__':\n    pass\nelse:\n    {'; '.join(ruin.splitlines())}\n"
                          "def f(x): return 0", *CALLS, *IO)  # fmt: skip
    assert verdict.reward == 0.0, verdict


@pytest.mark.parametrize(
    ("losses", "is_engine_dead", "outcome"),
    [
        (1, False, ("passed", "")),
        (2, False, ("error", "program")),
        (1, True, ("invalid", "infra")),
    ],
)
@pytest.mark.parametrize("is_function", [False, True])
async def test_a_sandbox_that_breaks_a_second_time_too_is_the_programs_doing(
    backend, monkeypatch, losses, is_engine_dead, outcome, is_function
):
    grader = Grader(Pool(ready=1))
    name = "run" if is_function else "exec"
    monkeypatch.setattr(OrderedSandbox, name, _losing(getattr(OrderedSandbox, name), losses, is_engine_dead))
    test = CALLS[0] if is_function else Io("", "hi")
    verdict = await grader.grade("print('hi')\ndef f(x): return 5  # mine", (test,), Policy())
    held = grader.pool.count.leased
    await grader.aclose()
    assert (verdict.status, verdict.fault) == outcome, verdict
    assert (verdict.reward, held) == ({"passed": 1.0, "error": 0.0, "invalid": None}[outcome[0]], 0)


def _losing(plain, losses, is_engine_dead):
    """The call, which breaks its sandbox when the program is in it; with its engine every sandbox breaks from then."""
    lost = []

    async def call(self, program, *args, **kwargs):
        is_its = "# mine" in str(program)
        if (is_its and len(lost) < losses) or (is_engine_dead and lost):
            lost.append(self)
            self.kill()
            raise LostError("no luck")
        return await plain(self, program, *args, **kwargs)

    return call


RENAMED = """
open("/proc/self/comm", "w").write("VmHWM: x")
def f(x): return 0
print("bye")
"""
HIDDEN_IN_A_LIBRARY_CALL = """
import ctypes
ctypes.CDLL(None).prctl(15, b"VmHWM: x", 0, 0, 0)
def f(x): return 0
print("bye")
"""


@pytest.mark.parametrize("program", [RENAMED, HIDDEN_IN_A_LIBRARY_CALL])
@pytest.mark.parametrize("test", [CALLS[0], Io("", "hi"), Assert("assert f(3) == 5")])
async def test_a_program_with_a_name_that_looks_like_a_number_is_wrong_and_no_more(grade, program, test):
    verdict = await grade(program, test)
    assert (verdict.valid, verdict.reward) == (True, 0.0), verdict


def picky(given, got, expected):
    return sorted(got) == [1, 2]


def broken(given, got, expected):
    return 1 / 0


@pytest.mark.parametrize("expected", [{"expected": [2, 1]}, {}])
async def test_a_checker_that_cannot_take_the_answer_fails_it(grade, expected):
    test = Call("f", checker=picky, **expected)
    assert (await grade("def f(): return [2, 1]", test)).status == "passed"
    for answer in ("None", "[1, 'a']", "object()", "[object(), 2]"):
        verdict = await grade(f"def f(): return {answer}", test)
        assert (verdict.status, verdict.fault) == ("failed", "program"), verdict


async def test_a_checker_that_hangs_does_not_block_others(grade):
    def slow(given, got, expected):
        return signal.pause() if got == 2 else True

    def leaving(given, got, expected):
        raise SystemExit

    policy = {"checker_s": 0.2}
    verdict = await grade("def f(): return 2", Call("f", expected=1, checker=slow), **policy)
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict
    assert "ran longer than 0.2 s" in verdict.reason
    verdict = await grade("def f(): return 2", Call("f", expected=2, checker=slow), **policy)
    assert (verdict.status, verdict.fault) == ("invalid", "task"), verdict
    verdict = await grade("print(2)", Io("", "2", checker=leaving), **policy)
    assert (verdict.status, verdict.fault) == ("invalid", "task"), verdict


async def test_a_checker_that_raises_on_what_is_right_is_the_tasks_fault(grade):
    verdict = await grade("def f(): return 1", Call("f", expected=1, checker=broken))
    assert (verdict.status, verdict.fault) == ("invalid", "task")
    verdict = await grade("print(1)", Io("", "1", checker=broken))
    assert (verdict.status, verdict.fault) == ("invalid", "task")


AGREEABLE = """
class Agreeable:
    def __sub__(self, other): return 0.0
    __add__ = __radd__ = __rsub__ = __mul__ = __mod__ = __rmod__ = __pow__ = __and__ = __isub__ = __sub__
    def __abs__(self): return 0.0
    def __contains__(self, item): return True
    def __divmod__(self, other): return 0, 0
def f(*args): return Agreeable()
"""


@pytest.mark.parametrize(
    "assertion",
    [
        "assert abs(f(2.0) - 4.0) < 1e-6",
        "assert abs(4.0 - f(2.0)) < 1e-6",
        "assert f(1) % 4 == 0 == 8 % f(1)",
        "assert divmod(f(1), 4) == (0, 0)",
        "assert not f(1) & 3",
        "assert f(1) * [1, 2] == 0.0",
        "assert 3 in f(1)",
        "assert {0: 3}[0] in f(1)",
        "assert all(v in y for v in [1, 2])",
        "x -= 4\nassert not x",
    ],
)
async def test_an_object_that_agrees_with_everything_is_asked_about_nothing(grade, assertion):
    verdict = await grade(AGREEABLE, Assert(f"x = y = f(1)\n{assertion}"))
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict


WEIGHED = "startswith = endswith = issubset = isdisjoint = count = index = lambda *_: True"


@pytest.mark.parametrize(
    "program",
    [
        f"class E:\n    {WEIGHED}\ndef f(x): return E()",
        f"class E(str):\n    {WEIGHED}\ndef f(x): return E()",
        f"class E(Exception):\n    {WEIGHED}\ndef f(x): return E()",
        f"class E:\n    {WEIGHED}\ndef f(x): return E",
        f"class f:\n    {WEIGHED}\n    def __init__(self, x): pass",
        "class E:\n    __getattr__ = lambda self, name: lambda *_: True\ndef f(x): return E()",
        f"class E:\n    __bool__ = lambda self: True\n    {WEIGHED}\ndef f(x): return E()",
        f"class E:\n    __len__ = lambda self: 1\n    {WEIGHED}\ndef f(x): return E()",
    ],
)
async def test_an_object_is_not_asked_what_plain_data_would_know(grade, program):
    for source in (
        "assert f('a').startswith('hello')",
        "x = f('a')\nassert x.issubset({1, 2})",
        "x = f('a')\nassert all(x.count(v) == 1 for v in [1, 2])",
        *(["assert f(1)", "x = f(1)\nassert x"] if "bool" in program or "len" in program else []),
    ):
        verdict = await grade(program, Assert(source))
        assert (verdict.status, verdict.fault) == ("failed", "program"), verdict


DESCRIBED = """
import sys
inside = sys.modules["agentrl_code.inside.candidate"]
described = inside.OPERATIONS["class"]
def forged(kind, args, kwargs):
    said = described(kind, args, kwargs)
    if kind is E:
        {change}
    return said
inside.OPERATIONS["class"] = forged
class E:
    __eq__ = __lt__ = __gt__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __bool__ = lambda self: True
def f(x): return E()
"""


@pytest.mark.parametrize("form", ["object", "named", "error"])
@pytest.mark.parametrize(
    "source", ["assert [f(1)] == [5]", "x = f(1)\nassert 4 < x and x < 6", "x = f(1)\nassert not x != 5"]
)
async def test_a_forged_class_cannot_have_comparisons_asked_of_it(grade, form, source):
    change = f"said[0], said[5] = {form!r}, ['__eq__', '__ne__', '__lt__', '__gt__', '__bool__', '__hash__']"
    verdict = await grade(DESCRIBED.format(change=change), Assert(source))
    assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict
    verdict = await grade(DESCRIBED.format(change=change.replace("said[5]", "said[6]")), Assert(source))
    assert (verdict.reward, verdict.fault) == (0.0, "program"), verdict


@pytest.mark.parametrize(
    "said",
    [
        "5", "1 / 0", "[]", "[[]] * 8", "['object', 'E', None, False, False, [], [], []]",
        "['coroutine', 'function', None, True, True, ['__call__'], [], ['object']]",
        "['object', 'E', None, False, False, [], [], [type('E', (), {})]]",
    ],
)  # fmt: skip
async def test_a_forged_class_does_not_spare_the_program(grade, said):
    program = DESCRIBED.format(change="pass") + f"inside.OPERATIONS['class'] = lambda *_: {said}\n"
    verdict = await grade(program, Assert("assert [f(1)] == [5]"))
    assert (verdict.reward or 0.0, verdict.fault) == (0.0, "program"), verdict


@pytest.mark.parametrize(
    "program",
    [
        """
        class Meta(type):
            def __getattribute__(cls, name): return 1 / 0 if name == "__mro__" else type.__getattribute__(cls, name)
        class F(metaclass=Meta):
            def __call__(self, x): return 0
        f = F()
        """,
        """
        class F:
            def __call__(self, x): return 0
        for _ in range(300): F = type("F", (F,), {})
        f = F()
        """,
    ],
)
async def test_a_class_that_cannot_be_described_does_not_spare_the_program(grade, program):
    verdict = await grade(textwrap.dedent(program), Assert("assert [f(1)] == [5]"))
    assert (verdict.reward or 0.0, verdict.fault) == (0.0, "program"), verdict


# --- what a program answers before it is called -------------------------------------------------------------------

FORGED_CLASS = """
import sys, time
C = sys.modules["agentrl_code.inside.candidate"]
own, n = C._perform, [0]
def perform(operation, *rest):
    if operation == "class":
        n[0] += 1
        {doc}
        return ["list", "object", "function", DOC, True, True,
                ["list", "__call__"], ["list"], ["list", "object"]], None
    return own(operation, *rest)
C._perform = perform
def f(x): return 3
"""


@pytest.mark.parametrize(
    "doc",
    [
        "DOC = '\\ud800'",
        "DOC = ['ref', 10**6 + n[0], 'function', 10**6 + n[0], True]",
        "DOC = ['named', 5, 'N', 77, 1, 2]",
        "DOC = 'x' * 10",
    ],
    ids=range(4),
)
async def test_what_a_program_says_of_its_functions_is_its_answer(grade, doc):
    verdict = await grade(FORGED_CLASS.format(doc=doc), Assert("xs = [1, 2]\nassert f(4) == sum(xs)"))
    assert verdict.fault != "task", verdict


async def test_time_spent_on_answers_is_the_programs(grade):
    """Each is quick enough to be taken for what an order costs."""
    references = "['list', *[['ref', 10**6 + i, 'f', 10**6 + i, True] for i in range(900)]]"
    doc = f"time.sleep(0.01); DOC = {references} if n[0] == 1 else None"
    test = Assert("xs = [1, 2]\nassert f(4) == sum(xs)")
    verdict = await grade(FORGED_CLASS.format(doc=doc), test, total_s=2)
    assert (verdict.valid, verdict.fault) == (True, "program"), verdict


@pytest.mark.parametrize(
    ("body", "test"),
    [
        ("def make(x): return {i: i for i in x}\ndef total(x): return sum(x)",
         "b = make([1, 2, 3])\nassert total(b.values()) == 6"),
        ("def make(x): return [0]\ndef total(x): return 6", "b = iter(make(3))\nassert total(b) == 6"),
        ("import datetime\ndef make(x): return datetime.date(2000, 1, x)\ndef total(x): return 6",
         "assert total(make(3).timetuple()) == 6"),
        ("def make(x): return 'a'\ndef total(x): return 6", "assert total(make(3).upper) == 6"),
        ("class B: pass\ndef make(x): return B", "class D(make(3)): pass\nassert D() is not None"),
    ],
    ids=range(5),
)  # fmt: skip
async def test_plain_data_in_place_of_an_object_is_the_programs_fault(grade, body, test):
    verdict = await grade(body, Assert(test))
    assert verdict.fault == "program", verdict


@pytest.mark.parametrize("given", ["lambda: 1", "Own()", "(x for x in ())", "Own().g"])
async def test_an_object_of_the_test_that_cannot_be_sent_is_the_tasks_fault(grade, given):
    test = f"class Own:\n    def g(self): pass\nassert f(2) == 2\nassert f({given}) == 2"
    verdict = await grade("def f(x): return x", Assert(test))
    assert verdict.fault == "task", verdict


# --- what an answer may be handed ----------------------------------------------------------------------------------

LEARNING = """
KNOWN = []
def learn(*args): KNOWN.append(args)
class Base:
    def __len__(self): return 0
    def __getattr__(self, name): return learn
    {specials} = learn
class E(Base): pass
class Solution(Base):
    def f(self, *args): return self
f = Solution().f
def told(): return KNOWN[:]
""".format(
    specials=" = ".join(
        f"__{name}__"
        for name in [
            "contains",
            "getitem",
            "setitem",
            "delitem",
            "sub",
            "rsub",
            "isub",
            "ifloordiv",
            "add",
            "radd",
            "round",
            "divmod",
            "format",
        ]
    )
)
HANDED = [
    *(
        f"r.{name}(4)"
        for name in [
            "remove",
            "discard",
            "append",
            "add",
            "pop",
            "get",
            "setdefault",
            "index",
            "count",
            "insert",
            "fromkeys",
        ]
    ),
    *(
        f"r.{name}('a')"
        for name in ["strip", "split", "partition", "replace", "startswith", "encode", "format", "join", "isoformat"]
    ),
    *(
        f"r.{name}([4])"
        for name in ["difference_update", "symmetric_difference_update", "update", "subtract", "extend", "rotate"]
    ),
    "r.compare(4)",
    "r.__contains__(4)",
    "r.__sub__(4)",
    "list(map(r.__contains__, [4]))",
    "type(r).remove(r, 4)",
    "r[4]",
    "r[4] = 1",
    "del r[4]",
    "r - 4",
    "4 - r",
    "r //= 4",
    "4 in r",
    "round(r, 4)",
    "format(r, '4')",
    "r[:2]",
    "r[::-1]",
    "r[1:2, 3:4]",
    "del r[:1]",
    "r[:1] = [4]",
    "r.sort(key=lambda p: p)",
    "r.join(map(str, [4]))",
    "r.join(str(i) for i in [4])",
    "r.update(zip('ab', [4]))",
    "r.get('a', object())",
    "r.get('a', Exception)",
    "r.replace(memoryview(b'a'), b'')",
    "r(lambda: 4)",
    "r.push(lambda: 4)",
]


@pytest.mark.parametrize("answer", ["f(3)", "Solution().f(3)"])
async def test_an_answered_object_gets_no_data_where_plain_data_is_possible(grade, answer):
    tests = [Assert(f"r = {answer}\n{line}\nassert len(r) == 0") for line in HANDED]
    program = LEARNING.replace(
        "    def f(self, *args): return self\n", "    def f(self, *args): return self\n    __call__ = f\n"
    )
    verdict = await grade(program, *tests, Assert("assert told() == []"))
    assert [(test.source, result.fault, result.status) for test, result in zip(tests, verdict.results, strict=False)
            if result.status == "passed" or result.fault not in ("", "program")] == []  # fmt: skip
    assert verdict.results[-1].status == "passed", verdict.results[-1]
    assert verdict.fault == "program"


OWN = """
class Shelf:
    def __init__(self, *items): self.items = list(items)
    def __getitem__(self, key): return self.items[key]
    def __contains__(self, item): return item in self.items
    def __add__(self, item): return Shelf(*self.items, item)
    def append(self, item):
        self.items.append(item)
        return self
    def get(self, key, default=None): return default
    def push(self, item): self.items.append(item)
    def same(self): return self
def shelf(*items): return Shelf(*items)
def adder(n): return lambda m: n + m
def summing():
    total = 0
    while True: total += yield total
"""


@pytest.mark.parametrize(
    "source",
    [
        "s = Shelf(1, 2)\nassert s[:1] == [1] and s[::-1] == [2, 1] and 2 in s and s[-1] == 2",
        "s = Shelf(1)\nassert s.append(2).append(3).items == [1, 2, 3]",
        "assert (Shelf(1) + 2).items == [1, 2] and Shelf().get(1, 5) == 5",
        "s = shelf(1)\ns.push(2)\nassert s.items == [1, 2] and len(s.items) == 2",
        "s = shelf(1)\nassert isinstance(s, Shelf) and s[0] == 1",
        "s = Shelf(1)\nassert s[0] == 1 and s.same()[0] == 1",
        "s = Shelf(1)\ns.left = Shelf(2)\nassert s.left.items == [2]",
        "assert adder(3)(4) == 7 and next(summing()) == 0",
        "g = summing()\nnext(g)\nassert g.send(4) == 4",
    ],
)
async def test_objects_that_the_test_made_and_operations_unknown_to_plain_data_get_data_of_the_test(grade, source):
    verdict = await grade(OWN, Assert(source))
    assert verdict.status == "passed", verdict

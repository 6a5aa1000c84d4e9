"""A program earns exactly what it does: no trick adds to it, no accident of ours takes from it."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from agentrl_code import Assert, Call, Grader, Io, Policy, Status, Verdict, agrade, compare, grading
from agentrl_code import grade as grade_now
from agentrl_code.grader import SANDBOX
from agentrl_sandbox import Limits, Pool, SandboxError, UnavailableError, leases

GOOD = "def f(x):\n    return 3 * x + 2\n"
CALLS = (Call("f", (1,), expected=5), Call("f", (2,), expected=8))
CLAIM = Assert("assert f(1) == 5")
SCRIPT = Assert("assert [f(1)] == [5]")
EVERY = (*CALLS, CLAIM, SCRIPT)

# Each must not pass, whichever kind of test it meets.
TRICKS = {
    "equal to everything": "class E:\n __eq__ = lambda s, o: True\n __bool__ = lambda s: True\ndef f(x): return E()",
    "an int that equals all": "class E(int):\n __eq__ = lambda s, o: True\ndef f(x): return E(4)",
    "a str that equals all": "class E(str):\n __eq__ = lambda s, o: True\ndef f(x): return E()",
    "inside a list": "class E:\n __eq__ = lambda s, o: True\ndef f(x): return [E()]",
    "as a key": "class E:\n __eq__ = lambda s, o: True\n __hash__ = lambda s: 5\ndef f(x): return {E(): E()}",
    "ends at loading": "import os\nos._exit(0)",
    "ends inside": "import os\ndef f(x): os._exit(0)",
    "leaves with success": "def f(x): raise SystemExit(0)",
    "leaves at loading": "def f(x): return 5\nraise SystemExit(0)",
    "skips": "import unittest\ndef f(x): raise unittest.SkipTest('not today')",
    "asserts": "def f(x): raise AssertionError",
    "interrupts": "def f(x): raise KeyboardInterrupt",
    "closes everything": "import os\ndef f(x):\n os.closerange(0, 256)\n return 5",
    "writes everywhere": "import os\nfor fd in range(3, 99):\n try: os.write(fd, b'passed')\n except OSError: pass",
    "prints the end": "print('passed', flush=True)\nimport os\nos._exit(0)",
    "no function": "g = 1",
    "no callable": "f = 5",
    "a coroutine": "async def f(x): return 5",
    "a generator": "def f(x): yield 5",
    "a string": "def f(x): return '5'",
    "deep": "def f(x):\n a = []\n a.append(a)\n return a",
    "large": "def f(x): return list(range(10 ** 6))",
    "colliding": "def f(x): return {i * ((1 << 61) - 1) for i in range(9000)}",
    "fills memory": "def f(x): return bytearray(1 << 40)",
    "looks around": """
        import gc, sys
        def f(x):
            frame, found = sys._getframe(), []
            while frame:
                found += frame.f_locals.values()
                frame = frame.f_back
            found += gc.get_objects()
            return next((o for o in found if type(o) is int and o in (5, 8) and o != x), None) or 0
        """,
    "replaces the harness": """
        import builtins, sys
        sys.modules["agentrl_code.inside.candidate"].to_tree = lambda *a: ["int", "0x0"]
        def f(x): return 5
        """,
    "an exception that bites": """
        class Bite(Exception):
            args = property(lambda s: 1 / 0)
            def __str__(s): raise SystemExit(0)
        def f(x): raise Bite
        """,
}
FORGED = """
import os, sys
def forge(*payloads):
    frame = sys._getframe()
    while frame:
        if nonce := frame.f_locals.get("nonce"):
            for payload in payloads:
                sys.modules["agentrl_code.inside.candidate"].channel.say(nonce, payload)
            return
        frame = frame.f_back
def f(x):
"""


def written(program):
    return textwrap.dedent(program)


async def test_a_right_program_passes_every_kind_of_test(grade):
    verdict = await grade(GOOD, *EVERY)
    assert (verdict.status, verdict.reward, verdict.share, verdict.feedback) == ("passed", 1.0, 1.0, "")
    assert len(verdict.results) == len(EVERY)


@pytest.mark.parametrize("name", TRICKS)
async def test_no_trick_earns_a_point(grade, name):
    verdict = await grade(written(TRICKS[name]), *EVERY)
    assert verdict.valid, verdict.reason
    assert verdict.share == 0.0, verdict.results


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "import time\n time.sleep(99)",
        "import signal\n signal.signal(2, signal.SIG_IGN)\n while True: pass",
        "try:\n  while True: pass\n except BaseException: return 3 * x + 2",
        "import threading\n threading.Thread(target=f, args=(x,)).start()\n while True: pass",
    ],
)
async def test_a_program_out_of_time_gets_no_share_of_the_tests(grade, loop):
    verdict = await grade(f"def f(x):\n {loop}\n", *EVERY, timeout_s=0.5)
    assert (verdict.status, verdict.share) == ("error", 0.0)
    assert "time" in verdict.reason or "processes" in verdict.reason


async def test_late_output_of_threads_disturbs_nothing(grade):
    program = """
        import atexit, sys, threading
        def f(x):
            print("5", file=sys.stderr)
            def late(n=[0]):
                while n[0] < 10 ** 5:
                    n[0] += 1
                    print("late" * 9)
            threading.Thread(target=late, daemon=True).start()
            return 3 * x + 2
        atexit.register(print, "later")
        """
    assert (await grade(written(program), *EVERY)).status == "passed"


async def test_inputs_that_a_program_changes_are_its_own_copies(grade):
    program = "def f(x):\n    x.clear()\n    return []\n"
    wanted = [3, 1]
    aliased = Call("f", (wanted,), expected=wanted)
    for test in (
        aliased,
        Assert("x = [3, 1]\nassert f(x) == sorted(x)"),
        Assert("x = [3, 1]\ny = f(x)\nassert y == x"),
    ):
        assert (await grade(program, test)).status == "failed"
    assert wanted == [3, 1]


async def test_a_forged_answer_is_an_answer_and_no_more(grade):
    forged = FORGED + """    forge('["value", 5, null]', '["value", 8, null]')\n    os._exit(0)\n"""
    assert (await grade(forged, *CALLS)).status == "passed"  # it could have returned them
    wrong = FORGED + """    forge('["value", 5, null]', '["value", 9, null]')\n    os._exit(0)\n"""
    assert (await grade(wrong, *CALLS)).status == "failed"
    extra = FORGED + """    forge('["value", 5, null]')\n    return 3 * x + 2\n"""
    assert (await grade(extra, *CALLS)).status == "error"


@pytest.mark.parametrize(
    "payload",
    ["[", "5", '["passed"]', '["value", ["tuple"]]', '["value", {}, null]', '["value", ["no", 1], null]', "[" * 99999,
     '["value", ["int", "zz"], null]', '["value", ["ref", "x", 5], null]', '["value", ["Fraction", "1e9", 1], null]',
     '["raised", 5, 5, 5]', '["value", ["dict", 1], null]', '["value", ["set", ["list"]], null]'],
)  # fmt: skip
async def test_an_unreadable_payload_is_invalid_and_never_a_point(grade, payload):
    verdict = await grade(FORGED + f"    forge({payload!r})\n    os._exit(0)\n", *CALLS)
    assert (verdict.status, verdict.reward) == ("invalid", None)


@pytest.mark.parametrize(
    "tests",
    [
        (),
        (Call("f", (1,)),),
        (Call("f", (1,), expected=None),),
        (Call("f", (object(),), expected=1),),
        (Call("f", (1,), expected=object()),),
        (Io("1", ""),),
        (Io("1", " \n"),),
        (Io("\ud800", "1"),),
        (Io("1", "1\n" * (3 << 20)),),
        (Assert(""),),
        (Assert("f(1)"),),
        (Assert("assert True"),),
        (Assert("f(1)\nassert True"),),
        (Assert("def checks():\n    assert f(1) == 5"),),
        (Assert("for x in []:\n    assert f(x) == 5"),),
        (Assert("import unittest\nraise unittest.SkipTest\nassert f(1) == 5"),),
        (Assert("assert undefined_before(1) == f(1)\nassert 1 / 0"), Call("f", (1,))),
        (Assert("assert f(1) = 5"),),
        (Assert("assert f(lambda: 1) == 5"),),
        (*CALLS, Call("f", (3,))),
        (*CALLS, Assert("1 / 0\nassert f(1) == 5")),
    ],
)
async def test_tests_that_test_nothing_are_invalid_whatever_the_program(grade, tests):
    for program in (GOOD, "def f(*args): pass"):
        verdict = await grade(program, *tests)
        assert (verdict.status, verdict.reward) == ("invalid", None), verdict


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("True", 1), ("1", True), ("1.0", 1), ("1", 1.0), ("(1,)", [1]), ("[1]", (1,)), ("{1: 2}", {True: 2}),
        ("{1}", {1.0}), ("{1}", frozenset({1})), ("b'a'", "a"), ("[[1.0]]", [[1]]), ("0.30000000000000004", 0.3),
        ("{'a': [1, (2, 3)]}", {"a": [1, [2, 3]]}), ("None", 0), ("''", None), ("{(1, True): 0}", {(1, 1): 0}),
    ],
)  # fmt: skip
async def test_types_are_exact_in_calls(grade, given, wanted):
    verdict = await grade(f"def f(): return {given}", Call("f", expected=wanted), Call("f", expected=5))
    assert verdict.results[0].status == "failed"
    same = await grade(f"def f(): return {given}", Call("f", expected=eval(given)), Call("f", expected=5))  # noqa: S307
    assert same.results[0].status == "passed"


async def test_every_plain_value_comes_back_as_it_was(grade):
    values = [
        None, True, 0, -1, 2**53, -(2**70), 10**5000, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324,
        1 + 2j, "", "a\0\u2028'\"\\", "\ud800", b"\0\xff", bytearray(b"x"), [], (), {}, set(), frozenset({1}), range(3),
        [[(1, {2: {3}})]], {"k": (None, True)}, {(1, "a"): b"c"},
    ]  # fmt: skip
    program = "def f(x): return x"
    tests = [Call("f", (value,), expected=value) for value in values]
    verdict = await grade(program, *tests)
    assert [r for r in verdict.results if r.status != "passed"] == []


async def test_the_librarys_own_containers_are_carried(grade):
    program = """
        from collections import Counter, OrderedDict, defaultdict, deque
        from decimal import Decimal
        from fractions import Fraction
        from datetime import date, datetime, timedelta
        def f(i):
            return [Counter("aab"), OrderedDict(a=1), defaultdict(list, a=[1]), deque([1, 2]), Decimal("1.50"),
                    Fraction(1, 3), date(2020, 2, 29), datetime(2020, 2, 29, 1), timedelta(-1, 2, 3)][i]
        """
    source = "import datetime, collections, fractions, decimal\n" + "\n".join(
        f"assert f({i}) == {value}"
        for i, value in enumerate([
            "{'a': 2, 'b': 1}", "{'a': 1}", "{'a': [1]}", "collections.deque([1, 2])", "decimal.Decimal('1.5')",
            "fractions.Fraction(1, 3)", "datetime.date(2020, 2, 29)", "datetime.datetime(2020, 2, 29, 1)",
            "datetime.date(2020, 1, 1) - datetime.datetime(2020, 1, 2).date() + datetime.timedelta(0, 2, 3)",
        ])
    )  # fmt: skip
    assert (await grade(written(program), Assert(source))).status == "passed"


@pytest.mark.timeout(240)
async def test_large_and_deep_values_come_back(grade):
    nested = 0
    for _ in range(70):
        nested = [nested]
    deep = (Call("f", (nested,), expected=nested), *[Assert(f"assert {x}") for x in (
        f"f({nested}) == {nested}", f"[f({nested})] == [{nested}]")])  # fmt: skip
    assert (await grade("def f(x): return x", *deep)).status == "passed"
    assert (await grade("def f(x): return x[0]", *deep)).share == 0.0
    large = Call("f", (400_000,), expected=list(range(400_000))), Assert("assert [len(f(400_000))] == [400_000]")
    assert (await grade("def f(n): return list(range(n))", *large)).status == "passed"
    assert (await grade("def f(n): return list(range(1, n))", *large)).share == 0.0
    verdict = await grade("def f(n): return 'x' * n", Call("f", (20_000_000,), expected="x" * 20_000_000))
    assert (verdict.status, verdict.fault) == ("failed", "program")
    assert verdict.feedback.endswith("the program gave a value of 20000017 bytes; the limit is 16777216.")


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("\ufeffdef f(): return True", "passed"),
        ("def g(x: int): pass\ndef f(): return g.__annotations__['x'] is int", "passed"),
        ("import dataclasses as d\n@d.dataclass\nclass A:\n x: int\ndef f(): return d.fields(A)[0].type is int",
         "passed"),
        ("from __future__ import annotations\ndef g(x: int): pass\ndef f(): return g.__annotations__ == {'x': 'int'}",
         "passed"),
        ("from __future__ import annotations\ndef f(x: Unknown = 1): return True", "passed"),
        ("def f(x: Unknown = 1): return True", "error"),
        ("import os\nHERE = os.path.dirname(__file__)\ndef f(): return HERE == ''", "passed"),
    ],
)  # fmt: skip
async def test_a_module_is_what_python_makes_of_it(grade, program, status):
    assert (await grade(program, Call("f", expected=True), Assert("assert [f()] == [True]"))).status == status


async def test_test_code_is_compiled_as_it_stands(grade):
    test = Assert("def g(x: int): pass\nassert f(1) == 1 and g.__annotations__['x'] is int")
    assert (await grade("def f(x): return x", test, setup="\ufeffimport math")).status == "passed"


async def test_a_named_tuple_is_no_tuple_to_a_call_and_equals_one_to_an_assertion(grade):
    program = "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)"
    verdict = await grade(program, Call("f", expected=(1, 2)), Assert("assert f() == (1, 2)"))
    assert [result.status for result in verdict.results] == ["failed", "passed"]
    assert verdict.feedback == "f(): gave P(1, 2), but (1, 2) was expected."


async def test_floats_are_exact_unless_a_tolerance_is_given(grade):
    program = "def f(): return [0.1 + 0.2, float('nan'), 1]"
    test, other = Call("f", expected=[0.3, float("nan"), 1]), Call("f", expected=[0.31, float("nan"), 1])
    assert (await grade(program, test)).status == "failed"
    assert (await grade(program, test, float_tolerance=1e-9)).status == "passed"
    assert (await grade(program, other, float_tolerance=1e-9)).status == "failed"


async def test_a_decimal_nan_is_a_decimal_nan(grade):
    tests = [Call("f", (text,), expected=Decimal(text)) for text in ("NaN", "sNaN", "1.50")]
    program = "from decimal import Decimal\ndef f(text): return Decimal({})"
    verdict = await grade(program.format("text"), *tests)
    assert [result.status for result in verdict.results] == ["passed", "failed", "passed"]
    assert (await grade(program.format("'NaN'"), *tests)).share == 1 / 3


async def test_a_checker_that_changes_its_arguments_changes_a_copy(grade):
    def empties(args, got, expected):
        while got:
            expected.remove(got.pop())
        return not expected and not args[0].pop()

    test = Call("f", ([0],), expected=[1, 2], checker=empties)
    for program, status in (("def f(x): return [2, 1]", "passed"), ("def f(x): return []", "failed")) * 2:
        assert (await grade(program, test)).status == status


async def test_a_checker_decides_where_several_answers_are_right(grade):
    def is_root(args, got, expected):
        return (isinstance(got, int) and got * got == args[0]) or "yes"

    test = Call("f", (9,), checker=is_root)
    assert (await grade("def f(x): return -3", test)).status == "passed"
    assert (await grade("def f(x): return 4", test)).status == "failed"  # only True passes


async def test_the_tests_go_on_after_one_that_fails_and_not_after_an_end(grade):
    program = "import os\ndef f(x):\n if x == 2: return 1 / 0\n if x == 4: os._exit(0)\n return x\n"
    verdict = await grade(program, *[Call("f", (x,), expected=x) for x in (1, 2, 3, 4, 5)])
    assert [result.status for result in verdict.results] == ["passed", "error", "passed", "error", "error"]
    assert verdict.share == 0.4
    assert verdict.feedback == "f(2): the program raised ZeroDivisionError: division by zero (line 3 of the program)."


@pytest.mark.parametrize(
    "program",
    ["", "  \n", "def f(x) return 5", "def f(x): return 5\0", "def f(x): return '\ud800'", "x" * (1 << 20), "(" * 5000,
     "def f(x):\nreturn 5", "import nothing_like_it"],
)  # fmt: skip
async def test_what_is_no_program_is_an_error_of_its_own(grade, program):
    verdict = await grade(program, *EVERY)
    assert (verdict.status, verdict.reward) == ("error", 0.0)


async def test_a_sandbox_that_fails_is_invalid_and_the_next_program_is_graded(backend):
    class Failing(Pool):
        broken = True

        async def take(self, wait_s=60.0):
            if self.broken:
                raise SandboxError("no luck")
            return await super().take(wait_s)

    grader = Grader(Failing())
    verdict = await grader.grade(GOOD, CALLS, Policy())
    assert (verdict.status, verdict.reason) == ("invalid", "the sandbox failed: no luck")
    grader.pool.broken = False
    assert (await grader.grade(GOOD, CALLS, Policy())).status == "passed"
    await grader.aclose()


async def test_a_sandbox_that_dies_under_the_program_is_invalid(backend):
    class Dying(Pool):
        async def take(self, wait_s=60.0):
            sandbox = await super().take(wait_s)
            asyncio.get_running_loop().call_later(0.3, sandbox.kill)
            return sandbox

    grader = Grader(Dying())
    verdict = await grader.grade("def f(x):\n while True: pass", CALLS, Policy())
    assert verdict.status == "invalid"
    await grader.aclose()


async def test_what_is_expected_never_enters_the_programs_sandbox(backend):
    sent = {}

    class Recording(Pool):
        async def take(self, wait_s=60.0):
            sandbox = await super().take(wait_s)
            said = sent.setdefault(sandbox.id, [])
            order = sandbox.order
            sandbox.order = lambda words, stdin, *rest: said.append((words, stdin)) or order(words, stdin, *rest)
            return sandbox

    grader = Grader(Recording(limits=Limits()))
    secret = 123456789 * 8 + 9
    program = "def f(x):\n    return 8 * x + 9  # the program\nprint(8 * int(input() or 0) + 9)\n"
    program = program.replace("print", "if __name__ == '__main__': print")
    asked = (123456789,)
    tests = (
        Call("f", asked, expected=secret),
        Assert(f"assert f(123456789) == {secret}"),
        Assert(f"assert [f(123456789)] == [{secret}]"),
        Io("123456789", f"{secret}\n"),
    )
    assert (await grader.grade(program, tests, Policy())).status == "passed"
    await grader.aclose()
    with_program = [repr(said) for said in sent.values() if "# the program" in repr(said)]
    assert len(with_program) == 1
    assert not [said for said in with_program if str(secret) in said or hex(secret) in said]
    assert any(str(secret) in repr(said) for said in sent.values())  # the judge's


@pytest.mark.timeout(240)
async def test_grade_works_in_threads_loops_and_other_processes(backend):
    said = []
    threads = [threading.Thread(target=lambda: said.append(grade_now(GOOD, CALLS).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert said == ["passed"] * 4
    assert (await agrade(GOOD, CALLS)).status == "passed"
    assert grade_now(GOOD, CALLS).status == "passed"  # blocks this very loop
    code = f"import agentrl_code as a; print(a.grade({GOOD!r}, [a.Call('f', (1,), expected=5)]).status)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert await process.communicate() == (b"passed\n", b"")
    await asyncio.to_thread(_end_the_own_grader)


CHILD = """
import multiprocessing, sys
import agentrl_code as a
from agentrl_sandbox import leases

def work():
    assert a.grade("def f(x): return 5", [a.Call("f", (1,), expected=5)]).status == "passed"

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
    print(child.exitcode, len(list(leases.recorded())))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_a_child_of_multiprocessing_leaves_nothing(backend, tmp_path, method):
    (tmp_path / "child.py").write_text(CHILD)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "child.py"), method, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), leases.VARIABLE: str(tmp_path / "leases")},
    )  # fmt: skip
    assert await process.communicate() == (b"0 0\n", b"")


def _end_the_own_grader():
    [thread] = [thread for thread in threading.enumerate() if thread.name == "agentrl-code"]
    grading._end(grading._loop(os.getpid()), thread, os.getpid())
    grading._loop.cache_clear()
    grading._grader.cache_clear()


async def test_a_cancelled_grading_gives_its_sandbox_back(grade, backend):
    grader = Grader(at_once=1)
    work = asyncio.ensure_future(grader.grade("def f(x):\n while True: pass", EVERY, Policy()))
    while not grader.pool.count.leased:  # noqa: ASYNC110
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await grader.grade(GOOD, EVERY, Policy())).status == "passed"
    assert grader.pool.count.leased == 0
    await grader.aclose()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["bubblewrap", "docker"])
async def test_every_backend_grades_alike(name):
    try:
        pool = Pool(name, SANDBOX, ready=2, most=4)
    except UnavailableError as error:
        pytest.skip(str(error))
    grader = Grader(pool, at_once=2)
    prints = "\nif __name__ == '__main__': print(3 * int(input()) + 2)\n"
    tests = (*EVERY, Io("1", "5\n"))
    for program, status in (
        (GOOD + prints, "passed"),
        (GOOD, "failed"),
        (TRICKS["equal to everything"] + prints, "failed"),
        (TRICKS["ends inside"] + prints, "error"),
        (TRICKS["closes everything"] + prints, "error"),
        ("def f(x):\n while True: pass" + prints, "error"),
        (FORGED + "    forge('[')\n    os._exit(0)\n" + prints, "invalid"),
    ):
        verdict = await grader.grade(written(program), tests, Policy(timeout_s=1))
        assert (verdict.status, verdict.fault) == (status, "" if status == "passed" else "program"), verdict
    await grader.aclose()


def test_a_policy_that_makes_no_sense_is_refused():
    for options in ({"timeout_s": 0}, {"float_tolerance": 1}, {"wait_s": -1}):
        with pytest.raises(ValueError, match="must be above 0"):
            Policy(**options)


@pytest.mark.timeout(240)
async def test_the_readme_runs(backend):
    text = (Path(__file__).parents[1] / "README.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        snippet,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert await process.communicate() == (None, b"")


USES = "import numpy as np, sympy\n"


@pytest.mark.parametrize(
    ("program", "test", "status"),
    [
        ("def f(x): return int(np.sum(x))", Call("f", ([1, 2],), expected=3), "passed"),
        ("def f(x): return np.mean(x)", Call("f", ([1, 2],), expected=1.5), "passed"),
        ("def f(x): return np.sum(x)", Assert("assert f([1, 2]) == 3"), "passed"),
        ("def f(x): return np.sum(x)", Assert("assert f([1, 2]) == 4"), "failed"),
        ("def f(x): return list(np.array(x) > 1)", Assert("y = f([1, 2])\nassert y == [False, True]"), "passed"),
        ("def f(x): return np.array(x)", Call("f", ([1, 2],), expected=[1, 2]), "failed"),
        ("def f(x): return np.datetime64(x, 'ns')", Call("f", (3,), expected=3), "failed"),
        ("def f(x): return np.longdouble(x)", Call("f", (3,), expected=3.0), "failed"),
        ("def f(x): return sympy.Integer(x)", Call("f", (3,), expected=3), "failed"),
        ("print(np.sum([1, 2]), sympy.sqrt(int(input())))", Io("8", "3 2*sqrt(2)"), "passed"),
    ],
)
async def test_programs_with_packages_are_graded_and_a_number_of_numpys_is_a_number(lender, program, test, status):
    verdict = await lender.grade(USES + program, [test], Policy(entry="f", timeout_s=30))  # imports take seconds
    assert verdict.status == status, verdict


async def test_a_class_that_says_it_is_numpys_is_still_an_object(lender):
    program = "import numpy\nclass E:\n __module__ = 'numpy'\n __eq__ = lambda s, o: True\n item = lambda s: 5"
    verdict = await lender.grade(f"{program}\ndef f(x): return E()", EVERY, Policy(entry="f"))
    assert verdict.status == "failed", verdict


async def test_without_packages_there_are_none(grade):
    verdict = await grade("import numpy\n" + GOOD, CALLS[0])
    assert (verdict.status, "No module named 'numpy'" in verdict.reason) == ("error", True), verdict


@pytest.fixture
async def lender(backend):
    grader = Grader(at_once=1, packages=["numpy", "sympy"])
    yield grader
    await grader.aclose()


async def test_a_wait_in_a_queue_that_moves_is_no_accident(backend, monkeypatch):
    """Each in front takes less than `wait_s`, all of them together more."""
    grader = Grader(at_once=1)

    async def judged(self, program, tests, policy):
        await asyncio.sleep(0.6)
        return Verdict(Status.PASSED)

    monkeypatch.setattr(Grader, "_judged", judged)
    asked = [grader.grade("def f(): return 5", (Call("f", expected=5),), Policy(wait_s=1.5)) for _ in range(5)]
    assert {verdict.status for verdict in await asyncio.gather(*asked)} == {"passed"}
    await grader._seats.acquire()
    verdict = await grader.grade("def f(): return 5", (Call("f", expected=5),), Policy(wait_s=0.1))
    assert (verdict.status, verdict.fault) == ("invalid", "infra")
    await grader.aclose()


def test_a_set_of_another_size_is_not_gone_through(monkeypatch):
    seen = []
    monkeypatch.setattr(compare, "_exact", lambda key: seen.append(key) or key)
    assert not compare.same({1, 2}, set(range(1000)))
    assert not compare.same({1: 1}.keys(), dict.fromkeys(range(1000)).keys())
    assert seen == []
    assert compare.same({1, 2}, {2, 1})
    assert len(seen) == 4

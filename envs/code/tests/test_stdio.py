"""A script reads its input in whatever style, and is judged by what it prints."""

import signal

import pytest
from agentrl_code import Io
from agentrl_code.compare import same_text

READERS = [
    "print(2 * int(input()))",
    "import sys\nprint(2 * int(sys.stdin.read()))",
    "import sys\nprint(2 * int(sys.stdin.readline()))",
    "import sys\nfor line in sys.stdin: print(2 * int(line))",
    "import sys\nprint(2 * int(sys.stdin.buffer.read()))",
    "from sys import stdin\nprint(2 * int(next(stdin)))",
    "import sys\nprint(2 * int(sys.stdin.readlines()[0]))",
    "print(2 * int(open(0).read()))",
    "import os\nprint(2 * int(os.read(0, 99)))",
    "import fileinput\nfor line in fileinput.input(): print(2 * int(line))",
    "import io, sys\nprint(2 * int(io.TextIOWrapper(sys.stdin.buffer).read()))",
    "if __name__ == '__main__':\n    print(2 * int(input()))",
    "import asyncio\nasync def main(): print(2 * int(input()))\nasyncio.run(main())",
    "import threading\nthreading.Thread(target=lambda: print(2 * int(input()))).start()",
    "import sys\nsys.setrecursionlimit(10 ** 6)\nsys.stdout.write(str(2 * int(input())))",
    "import os\nprint(2 * int(input()), flush=True)\nos._exit(0)",
    "import sys\nprint(2 * int(input()))\nsys.exit()",
    "print(2 * int(open('/dev/stdin').read()))",
    "import io, os\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(2 * int(input()))",
    "import sys\nsys.stdin.read()\nsys.stdin.seek(0)\nprint(2 * int(input()))",
    "import mmap\nprint(2 * int(mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:]))",
    "\ufeffprint(2 * int(input()))",
    "import os\nassert os.path.dirname(__file__) == ''\nprint(2 * int(input()))",
    "def f(x: int): pass\nassert f.__annotations__['x'] is int\nprint(2 * int(input()))",
    "import subprocess, sys\nprint(2 * int(subprocess.run(['cat'], capture_output=True, text=True).stdout))",
]
TESTS = (Io("4\n", "8\n"), Io("21", "42"))


@pytest.mark.parametrize("program", READERS)
async def test_input_is_there_in_every_style(grade, program):
    assert (await grade(program, *TESTS)).status == "passed"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print(8)", "failed"),
        ("print(2 * int(input()) + 1)", "failed"),
        ("print(2 * int(input()), 8)", "failed"),
        ("print(); print(2 * int(input()))", "failed"),
        ("print(f' {2 * int(input())}')", "failed"),
        ("", "error"),
        ("pass", "failed"),
        ("print(2 * int(input())); exit(1)", "error"),
        ("print(2 * int(input())); raise SystemExit('no')", "error"),
        ("print(2 * int(input())); import os; os.kill(os.getpid(), 9)", "error"),
        ("while True: print(8)", "error"),
        ("while True: pass", "error"),
        ("input(); input()", "error"),
        ("def f(x: Unknown): pass\nprint(2 * int(input()))", "error"),
        ("import os\nos.write(0, b'9'); os.lseek(0, 0, 0)\nprint(2 * int(input()))", "error"),
        ("import threading\nprint(2 * int(input()))\nthreading.Timer(0.1, print, (9,)).start()", "failed"),
    ],
)  # fmt: skip
async def test_what_is_printed_is_what_counts(grade, program, status):
    verdict = await grade(program, *TESTS, timeout_s=0.5)
    assert (verdict.status, verdict.reward) == (status, 0.0)


async def test_white_space_at_line_ends_is_forgiven_and_nothing_else(grade):
    for said, status in (
        ("a  \\nb\\n\\n", "passed"),
        ("a\\r\\nb", "passed"),
        ("a b", "failed"),
        ("a\\n\\nb", "failed"),
    ):
        assert (await grade(f"print('{said}')", Io("", "a\nb\n"))).status == status, said


async def test_numbers_are_compared_as_text_unless_a_tolerance_is_given(grade):
    test = Io("", "0.3333 yes\n")
    assert (await grade("print(1 / 3, 'yes')", test)).status == "failed"
    assert (await grade("print(1 / 3, 'yes')", test, float_tolerance=1e-3)).status == "passed"
    assert (await grade("print(1 / 3, 'no')", test, float_tolerance=1e-3)).status == "failed"
    assert (await grade("print('nan yes')", test, float_tolerance=1e-3)).status == "failed"


@pytest.mark.parametrize(
    ("wanted", "said", "status"),
    [
        ("100000000", "100000001", "failed"), ("1000", "1_000", "failed"), ("7", "0007", "failed"),
        ("7", "7.0", "failed"),
        ("1.5\n2.5", "1.5 2.5", "failed"), ("1.5 2.5", "1.5\n2.5", "failed"), ("1.5\n2", "1.5000001\n2", "passed"),
        ("1.0", "1", "passed"), ("1e5", "100000.01", "passed"), ("1e5", "100001", "failed"),
        ("10.0", "1_0.0", "failed"),
        ("nan", "NaN", "passed"), ("-inf", "-1e999", "passed"), ("en", "ne", "failed"), ("1.5", "\u0661.5", "failed"),
    ],
)  # fmt: skip
def test_a_tolerance_is_for_what_is_expected_as_a_float(wanted, said, status):
    assert same_text(wanted, said, 1e-6) is (status == "passed")


async def test_a_checker_sees_input_output_and_expectation(grade):
    def is_a_factor(stdin, stdout, expected):
        return int(stdin) % int(stdout) == 0 and expected == "3"

    assert (await grade("print(5)", Io("15", "3", is_a_factor))).status == "passed"
    assert (await grade("print(4)", Io("15", "3", is_a_factor))).status == "failed"


async def test_after_a_test_that_broke_a_limit_the_rest_is_not_run(grade):
    program = "x = int(input())\nwhile x == 1: pass\nprint(x)"
    verdict = await grade(program, Io("0", "0"), Io("1", "1"), Io("2", "2"), timeout_s=0.5)
    assert [result.status for result in verdict.results] == ["passed", "error", "error"]
    assert verdict.feedback == "with the input '1': the program ran out of time."


async def test_each_run_begins_anew(grade):
    program = "import sys\nsys.modules['x'] = 1\nprint(2 * int(input()))"
    assert (await grade(program, *TESTS * 3)).status == "passed"


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nprint('a\\nb')\nsys.stdout.close()",
        "import sys\nsys.stderr.close()\nprint('a\\nb')",
        "import sys\nprint('a\\nb')\nsys.stdout = sys.stderr = None",
        "import os\nout = os.fdopen(1, 'w')\nout.write('a\\nb')",
        "import io, sys\nsys.stdout = out = io.StringIO()\nprint('a\\nb')\nsys.__stdout__.write(out.getvalue())",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('a\\nb')",
        "class Last:\n    def __del__(self): print('b')\nlast = Last()\nprint('a')",
        "import atexit\nout = open(1, 'w')\natexit.register(out.write, 'b')\nprint('a', file=out)",
    ],
)
async def test_a_program_ends_as_it_would_in_python(grade, program):
    assert (await grade(program, Io("", "a\nb"))).status == "passed"


async def test_bytes_that_are_no_text_are_not_the_sign_that_stands_for_them(grade):
    shout = "import sys\nsys.stdout.buffer.write(bytes([0x61, 0xFF]))"
    verdict = await grade(shout, Io("", "a\ufffd"))
    assert verdict.status == "failed"
    assert verdict.feedback.encode()
    assert (await grade("print('a' + chr(0xfffd))", Io("", "a\ufffd"))).status == "passed"


async def test_a_program_may_have_as_many_threads_as_programs_have(grade):
    program = (
        "import threading\nready = threading.Barrier(65)\n"
        "threads = [threading.Thread(target=ready.wait) for _ in range(64)]\n"
        "[t.start() for t in threads]\nready.wait()\n[t.join() for t in threads]\nprint('all')"
    )
    assert (await grade(program, Io("", "all"))).status == "passed"


async def test_the_tests_of_one_program_end_in_time_together(grade):
    tests = [Io("", "x")] * 40
    verdict = await grade("import time\ntime.sleep(0.5)\nprint('x')", *tests, total_s=2)
    assert (verdict.status, verdict.fault) == ("error", "program")
    assert verdict.results[0].status == "passed"
    assert verdict.results[-1].reason == "was not reached"


async def test_checkers_that_hang_end_in_time_together(grade):
    def checker(*_):
        signal.pause()

    verdict = await grade("print('x')", *[Io("", "x", checker=checker)] * 9, checker_s=1, total_s=2)
    assert verdict.results[-1].reason == "was not reached"


@pytest.mark.parametrize(
    "program",
    [
        "import os\nos.makedirs('out/in')\nos.chmod('out/in', 0)\nos.chmod('out', 0o500)",
        "open('a', 'x').write('x')",
        "import sqlite3\nsqlite3.connect('a.db').execute('create table t (x)')",
        "open('log', 'a').write('x')\nassert open('log').read() == 'x'",
        "open('/tmp/a', 'x')\nopen('/dev/shm/a', 'x')\nimport os\nos.symlink('/usr', '/tmp/usr')",
        "import os\nfor i in range(2000):\n    os.mkdir('a')\n    os.chdir('a')",
        "import os\nos.chdir('/')\nos.rmdir('/tmp/work')\nopen('/tmp/work', 'x')",
        "import os\nassert os.listdir() == [] and os.listdir('/tmp') == ['work']\nfor i in range(9): open(str(i), 'x')",
    ],
)
async def test_each_run_of_a_script_begins_with_no_file_of_another(grade, program):
    verdict = await grade(f"{program}\nprint(2 * int(input()))", *TESTS, *TESTS)
    assert verdict.status == "passed", verdict


async def test_a_program_that_sleeps_in_every_run_uses_up_its_time_for_all_of_them(grade):
    tests = [Io("4\n", "8\n")] * 6
    program = "import time\ntime.sleep(1.2)\nprint(2 * int(input()))"
    verdict = await grade(program, *tests, timeout_s=0.5)
    assert (verdict.status, verdict.fault) == ("error", "program"), verdict
    assert [result.status for result in verdict.results][-3:] == ["error"] * 3
    assert "was not reached" in verdict.results[-1].reason
    assert (await grade(program, *tests[:2], timeout_s=5)).status == "passed"

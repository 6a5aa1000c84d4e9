"""Checkers run in processes of their own: whatever one does over an answer, the worker goes on."""

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from agentrl_code import MISSING, Call, Grader, Io, Policy
from agentrl_code.checkers import replies
from agentrl_code.grader import Checkers

from agentrl.env import resolve

RIGHT = "def f(): return 1"
WRONG = "def f(): return 2"


def is_one(given, got, expected):
    """Of a module that another process can import."""
    return got == 1


def stuck(given, got, expected):
    """Holds the interpreter for hours."""
    return got == 1 or 10**10**10 > 0


@pytest.fixture
async def checkers():
    made = Checkers(at_once=2)
    yield made
    await made.aclose()


def pids(checkers):
    return [process.group.process.pid for process in checkers._idle]


async def test_a_checker_that_never_releases_the_interpreter_does_not_block_the_event_loop(grade):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    test = Call("f", expected=1, checker=stuck)
    verdict = await grade(WRONG, test, checker_s=1)
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict
    assert ticks > 10
    assert (await grade(RIGHT, test)).status == "passed"
    ticking.cancel()


async def test_a_checker_that_fills_the_memory_fails_the_answer(grade):
    def hungry(given, got, expected):
        return bool(bytearray(1 << 45)) if got == 2 else True

    verdict = await grade(WRONG, Call("f", expected=1, checker=hungry))
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict


async def test_a_checker_that_ends_its_process_fails_the_answer(grade):
    def ending(given, got, expected):
        return got == 1 or os._exit(3)

    test = Call("f", expected=1, checker=ending)
    verdict = await grade(WRONG, test)
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict
    assert "its process ended" in verdict.reason
    assert (await grade(RIGHT, test)).status == "passed"


async def test_a_checker_that_prints_says_no_more_than_its_value(grade):
    def loud(given, got, expected):
        print('["said", true]', flush=True)
        os.write(1, b'["said", true]\n')
        return False

    assert (await grade(RIGHT, Call("f", expected=1, checker=loud))).status == "failed"


async def test_a_process_serves_again_and_one_that_others_ended_is_replaced(checkers):
    for _ in range(2):
        assert await checkers.is_approved(is_one, (), 1, 1, 20)
    (pid,) = pids(checkers)
    os.kill(pid, signal.SIGKILL)
    assert await checkers.is_approved(is_one, (), 1, 1, 20)
    assert pids(checkers) != [pid]


async def test_a_checker_gets_its_arguments(checkers):
    def looks(given, got, expected):
        return given == ([1], {2: (3,)}) and got == (1, "\udc80") and expected is MISSING

    assert await checkers.is_approved(looks, ([1], {2: (3,)}), ["tuple", 1, "\udc80"], MISSING, 20)
    assert not await checkers.is_approved(looks, (), ["tuple", 1, "\udc80"], MISSING, 20)


async def test_processes_end_with_their_grader(backend):
    grader = Grader(at_once=1)
    test = Call("f", expected=1, checker=is_one)
    assert (await grader.grade(RIGHT, [test], Policy())).status == "passed"
    (pid,) = pids(grader._checkers)
    await grader.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_grading_that_is_cancelled_ends_its_process(checkers):
    asked = asyncio.create_task(checkers.is_approved(stuck, (), 2, 1, 60))
    before = set(children())
    while not set(children()) - before:  # noqa: ASYNC110  (nobody announces it)
        await asyncio.sleep(0.01)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert set(children()) - before == set()


def children():
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


@pytest.mark.parametrize("name", ["lock", "frame"])
async def test_a_checker_that_no_other_process_can_run_is_the_tasks_fault(grade, name):
    held = {"lock": threading.Lock(), "frame": sys._getframe()}[name]

    def holding(given, got, expected):
        return bool(held)

    for test in (Call("f", expected=1, checker=holding), Io("", "x", checker=holding)):
        verdict = await grade(RIGHT, test)
        assert (verdict.status, verdict.fault) == ("invalid", "task"), verdict
        assert "has a checker that no other process can run" in verdict.reason


async def test_a_checker_of_a_single_file_is_sent_with_what_it_uses(grade, tmp_path):
    file = tmp_path / "own_env.py"
    file.write_text(
        "import math\nfrom agentrl_code import CodeEnv\nLIMIT = 2\ndef below(x): return math.floor(x) < LIMIT\n"
        "def checker(given, got, expected): return below(got)\nclass Own(CodeEnv): pass\n"
    )
    test = Call("f", expected=1, checker=sys.modules[resolve(str(file)).__module__].checker)
    assert (await grade(RIGHT, test)).status == "passed"
    assert (await grade(WRONG, test)).status == "failed"


def test_a_request_that_cannot_be_read_is_told():
    assert [verb for verb, _ in replies(b"junk")] == ["raised"]


@pytest.mark.parametrize("expected", [{}, {"expected_stdout": " \n"}])
async def test_a_checker_of_output_that_raises_without_an_expectation_fails_the_answer(grade, expected):
    test = Io("4", checker=lambda given, got, expected: int(got) % 7 == 0, **expected)
    assert (await grade("print(14)", test)).status == "passed"
    verdict = await grade("print('garbage')", test)
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict


async def test_none_is_no_expectation_that_a_checker_is_tried_on(grade):
    test = Call("f", expected=None, checker=lambda given, got, expected: sorted(got) == [1, 2])
    assert (await grade("def f(): return [2, 1]", test)).status == "passed"
    verdict = await grade("def f(): return 5", test)
    assert (verdict.status, verdict.fault) == ("failed", "program"), verdict

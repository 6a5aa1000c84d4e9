"""The pool answers or fails in time, from anywhere, and leaves nothing behind."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from agentrl_math import averify, verify
from agentrl_math.pool import OverrunError, Pool, PoolError, WorkerDiedError

REQUEST = {"gold": r"\sqrt{8}", "given": [r"2\sqrt{2}"], "policy": {}, "full": False}
SLOW = "+".join(f"3^{{1000000}}/2^{{1000000}}+{i}^{{500000}}/7^{{400000}}" for i in range(2, 14))
HANG = {"gold": "1", "given": [SLOW], "policy": {}, "full": False}
HANGS = [
    SLOW,
    r"\sum_{k=1}^{10^{12}} \frac{1}{k}",
    r"\prod_{k=1}^{10^8} k",
    r"\max(9^{9^{9^9}},1)",
    r"\sum_{k=1}^{10^9} k!",
]


@pytest.fixture
def pool():
    with_deadline = Pool(size=2, compute_s=1.0)
    yield with_deadline
    with_deadline.close()


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


def overrun(pool):
    with pytest.raises(OverrunError):
        pool.ask(HANG)


def gone(pids, within_s=10.0):
    deadline = time.monotonic() + within_s
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return not any(map(is_running, pids))


@pytest.mark.parametrize("answer", HANGS)
def test_a_hang_ends_at_the_deadline_and_is_never_correct(answer):
    verify(r"\boxed{\sum_{k=1}^{3} k}", "6")
    start = time.monotonic()
    verdict = verify(rf"\boxed{{{answer}}}", "1")
    assert verdict.status in ("verifier_failed", "incorrect")
    assert time.monotonic() - start < 8.0


@pytest.mark.parametrize(("answer", "gold"), [(SLOW, "1"), (SLOW, r"\sqrt2"), (rf"\{{{SLOW},1\}}", r"\{\pi, e\}")])
def test_what_takes_too_long_is_incorrect_where_the_gold_does_not(pool, answer, gold):
    verdict = verify(rf"\boxed{{{answer}}}", gold, pool=pool)
    assert verdict.status == "incorrect"
    assert "cannot be computed" in verdict.reason


def test_a_gold_that_cannot_be_computed_answers_itself_and_lets_no_answer_escape(pool):
    for gold, answer in (
        (r"9^{9^{9^9}}+1", r"9^{9^{9^9}}"),
        (r"\sin(10^{10^{14}})", "0"),
        (SLOW, "2"),
    ):
        assert verify(rf"\boxed{{{answer}}}", gold, pool=pool).status == "incorrect"
        assert verify(rf"\boxed{{{gold}}}", gold, pool=pool).status == "correct"


def test_a_starved_verifier_makes_no_answer_incorrect(pool):
    pool.ask(REQUEST)
    os.kill(pool.worker_pids[0], signal.SIGSTOP)
    assert verify(r"\boxed{\sqrt{8}}", r"3\sqrt2", pool=pool).status == "verifier_failed"
    assert verify(r"\boxed{\sqrt{8}}", r"3\sqrt2", pool=pool).status == "incorrect"


def test_what_a_call_computes_shares_one_deadline(pool, monkeypatch):
    given_s = []

    def overrun(_, worker, *__):
        given_s.append(worker.channel.gettimeout())
        late = OverrunError("late")
        late.is_deserved = True
        raise late

    monkeypatch.setattr(Pool, "_message", overrun)
    assert verify(r"\boxed{\sqrt{8}}", r"3\sqrt2", pool=pool).status == "incorrect"
    assert len(given_s) == 2  # the comparison, and the gold by itself
    assert sum(given_s) <= pool.compute_s


def test_a_second_worker_has_what_the_first_left_of_the_time(pool, monkeypatch):
    pool.ask(REQUEST)
    given_s, clock = [], iter(range(100))

    def die(_, worker, *__):
        given_s.append(worker.channel.gettimeout())
        raise ConnectionResetError

    monkeypatch.setattr(Pool, "_message", die)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 10)
    with pytest.raises(WorkerDiedError):
        pool.ask(REQUEST)
    assert given_s == [pool.compute_s, pytest.approx(pool.compute_s - 0.1)]


def test_after_a_hang_the_next_answer_is_right(pool):
    with pytest.raises(OverrunError):
        pool.ask(HANG)
    assert pool.ask(REQUEST) == {"same": True}


def test_a_hung_worker_is_killed(pool):
    pool.ask(REQUEST)
    before = pool.worker_pids
    with pytest.raises(OverrunError):
        pool.ask(HANG)
    assert gone(before)


def test_an_idle_worker_that_was_killed_is_replaced(pool):
    pool.ask(REQUEST)
    os.kill(pool.worker_pids[0], signal.SIGKILL)
    assert pool.ask(REQUEST) == {"same": True}


def test_a_full_worker_takes_the_place_of_a_plain_one_and_serves_both_kinds():
    narrow = Pool(size=1, compute_s=5)
    try:
        narrow.ask(REQUEST)
        plain = narrow.worker_pids
        assert narrow.ask({**REQUEST, "full": True}) == {"same": True}
        full = narrow.worker_pids
        assert gone(plain)
        assert narrow.ask(REQUEST) == {"same": True}
        assert narrow.worker_pids == full
    finally:
        narrow.close()


def test_a_killed_nursery_is_replaced(pool):
    pool.ask(REQUEST)
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert pool.ask(REQUEST) == {"same": True}


def test_a_worker_that_dies_at_work_is_a_failure_not_an_answer():
    patient = Pool(size=1, compute_s=30)
    try:
        failures = []

        def ask():
            try:
                patient.ask(HANG)
            except PoolError as problem:
                failures.append(problem)

        thread = threading.Thread(target=ask)
        thread.start()
        while not patient.worker_pids:
            threading.Event().wait(0.01)
        os.kill(patient.worker_pids[0], signal.SIGKILL)
        thread.join()
        assert isinstance(failures[0], WorkerDiedError)
        assert failures[0].fault == "infra"
    finally:
        patient.close()


def test_close_leaves_no_process(pool):
    with pytest.raises(OverrunError):
        pool.ask(HANG)
    pool.ask(REQUEST)
    pool.ask({**REQUEST, "full": True})
    pids = pool.pids
    assert len(pids) == 4
    pool.close()
    pool.close()
    assert gone(pids)
    with pytest.raises(PoolError, match="closed"):
        pool.ask(REQUEST)


def test_waiting_for_a_worker_is_bounded():
    narrow = Pool(size=1, compute_s=1.0, queue_s=0.05)
    try:
        thread = threading.Thread(target=overrun, args=(narrow,))
        thread.start()
        while not narrow.worker_pids:
            threading.Event().wait(0.01)
        with pytest.raises(PoolError, match="free"):
            narrow.ask(REQUEST)
        thread.join()
    finally:
        narrow.close()


def test_many_threads_get_their_own_verdicts():
    expected = {i: "correct" if i % 3 == 0 else "incorrect" for i in range(60)}
    found = {}

    def grade(i):
        found[i] = verify(rf"\boxed{{{i}\sqrt{{8}}}}", rf"{2 * i if i % 3 == 0 else 2 * i + 1}\sqrt2").status

    threads = [threading.Thread(target=grade, args=(i,)) for i in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


async def test_inside_a_running_loop_both_forms_work_and_the_loop_goes_on():
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert verify(r"\boxed{\sqrt{8}}", r"2\sqrt2").status == "correct"
    before = ticks
    verdicts = await asyncio.gather(*(averify(rf"\boxed{{{i}\sqrt{{8}}}}", rf"{2 * i}\sqrt2") for i in range(50)))
    ticking.cancel()
    assert {verdict.status.value for verdict in verdicts} == {"correct"}
    assert ticks > before


def _in_child(queue):
    queue.put(verify(r"\boxed{\sqrt{8}}", r"2\sqrt2").status.value)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_has_a_pool_of_its_own(method):
    assert verify(r"\boxed{\sqrt{8}}", r"2\sqrt2").status == "correct"
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=50) == "correct"
    child.join(timeout=20)
    assert verify(r"\boxed{\sqrt{12}}", r"2\sqrt3").status == "correct"


def test_a_process_that_ends_or_is_killed_leaves_no_verifier():
    code = (
        "import sys; from agentrl_math import verify; from agentrl_math.pool import default;"
        r"verify(r'\boxed{\sqrt{8}}', r'2\sqrt2'); print(*default().pids, flush=True); sys.stdin.readline()"
    )
    for kill in (False, True):
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout
        pids = [int(pid) for pid in child.stdout.readline().split()]
        assert len(pids) == 2
        if kill:
            child.kill()
        child.communicate("\n" if not kill else None)
        assert gone(pids)


def test_a_worker_that_hangs_ends_with_a_killed_parent():
    code = (
        "import threading; from agentrl_math.pool import Pool; pool = Pool(size=1, compute_s=60)\n"
        f"threading.Thread(target=pool.ask, args=({HANG!r},), daemon=True).start()\n"
        "while not pool.worker_pids: threading.Event().wait(0.01)\n"
        "threading.Event().wait(0.2); print(*pool.pids, flush=True); threading.Event().wait()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    pids = [int(pid) for pid in child.stdout.readline().split()]
    child.kill()
    child.communicate()
    assert len(pids) == 2
    assert gone(pids)


def test_plain_numbers_need_no_process():
    code = (
        "from agentrl_math import verify, pool\n"
        "for i in range(100): verify(f'7 + 8 = {i}', '15'); verify(rf'\\boxed{{{i}/2}}', '3.5')\n"
        "verify('(1,2)', '(1,2)')\n"
        "assert pool._default is None\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

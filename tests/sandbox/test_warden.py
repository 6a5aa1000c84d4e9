"""The warden believes nothing that a program says, and nothing that a program does ends it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from agentrl_sandbox import Backend, Limit, Python, RefusedError, Sandbox, cgroups, leases, shell
from agentrl_sandbox.inside import proc, wire
from agentrl_sandbox.inside.job import Job, Order, Process
from agentrl_sandbox.inside.tree import Tree

from tests.sandbox.asking import another, assert_serves, printed, processes, python
from tests.sandbox.conftest import TIGHT, backend

ROUNDS = 6
END = "import os; os._exit(0)"
NAMES = [
    b"VmHWM: x",
    b"VmHWM:\t9 kB",
    b"a\nVmHWM: x",
    b"a\nVmHWM:\t-1 kB",
    b") Z 1 1 1 1 1",
    b"(((((((((((((((",
    b")))))))))))))))",
    b"a b\tc\rd\x0be",
    b"\xff\xfe\xed\xa0\x80",
    b"\\nVmHWM: 1 kB",
    b" ",
]


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
async def test_no_process_name_confuses_the_warden(sandbox: Sandbox, name: bytes) -> None:
    rename = f"open('/proc/self/comm', 'wb').write({name!r})\n"
    called = await sandbox.run(f"{rename}open('/proc/self/comm', 'rb').read()")
    assert called.stdout == f"{name + chr(10).encode()!r}\n".encode()
    assert 1 << 20 < called.peak_memory_bytes < TIGHT.memory_bytes
    fork = f"import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        {rename}        time.sleep(60)\n"
    looked_at = await python(sandbox, f"{fork}while time.process_time() < 0.4: pass")
    assert looked_at.is_ok, looked_at
    assert looked_at.cpu_s > 0.3
    assert (await sandbox.run("6 * 7")).stdout == b"42\n"
    await sandbox.run(END)


@pytest.mark.parametrize("name", NAMES)
def test_the_parser_finds_parent_and_time_behind_any_name(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = b"77 (%s) S 5 77 77 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 4242 0 0\n" % name
    monkeypatch.setattr(proc, "read", lambda path: stat)
    found = proc.process(77)
    assert found is not None
    assert (found.pid, found.parent, found.state, found.started) == (77, 5, b"S", 4242)
    assert found.cpu_s == 200 / proc.TICKS


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"", 0),
        (b"\n\n", 0),
        (b"VmHWM:", 0),
        (b"VmHWM:\n", 0),
        (b"VmHWM:\tx kB\n", 0),
        (b"VmHWM:\t-1 kB\n", 0),
        (b"VmHWM:\t" + b"9" * 5000 + b" kB\n", 0),
        (b"VmHWM:\t\xd9\xa1 kB\n", 0),
        (b"Name:\tVmHWM: 9 kB\nVmHWM:\t7 kB\n", 7),
        (b"Name:\ta\nVmHWM: 9 kB\nVmHWM:\t7 kB\n", 7),
    ],
)
def test_a_number_is_read_where_the_kernel_writes_it_or_is_none(
    text: bytes, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "read", lambda path: text)
    assert proc.number("/proc/1/status", b"VmHWM:") == number
    assert proc.process(1) is None


def test_what_cannot_be_read_is_empty() -> None:
    for path in ("/nowhere", "/proc", "a\0b", "/proc/self/mem"):
        assert proc.read(path) == b""
    assert proc.process(1 << 30) is None
    assert proc.process(os.getpid()) is not None
    assert os.getpid() in proc.processes()


# --- the start of a program ---------------------------------------------------------------------------------------

SIX = """
import os
def six(ruin):
    for _ in range(6):
        if os.fork() == 0:
            for fd in range(3, 9):
                try: os.close(fd)
                except OSError: pass
            while True:
                try: ruin()
                except OSError: pass
work = os.getcwd()
"""
RUINS = {
    "chmod": "def ruin():\n    os.chmod(work, 0); os.chmod(work, 0o755)",
    "rename": "os.chdir('/')\ndef ruin():\n    os.rename(work, '/tmp/away'); os.rename('/tmp/away', work)",
    "link": "os.chdir('/'); os.rename(work, '/tmp/away')\n"
    "def ruin():\n    try: os.symlink('/tmp/away', work)\n    finally: os.unlink(work)",
    "fifo": "os.chdir('/'); os.rename(work, '/tmp/away')\n"
    "def ruin():\n    try: os.mkfifo(work)\n    finally: os.unlink(work)",
    "remove": "os.chdir('/')\ndef ruin():\n    try: os.mkdir(work)\n    finally: os.rmdir(work)",
}


async def tried(sandbox: Sandbox) -> set[str]:
    """What comes of everything that a sandbox does, asked of it again and again."""
    outcomes = set[str]()
    for _ in range(ROUNDS):
        result = await python(sandbox, "print('ran')")
        outcomes.add("ran" if result.is_ok else f"failed with {result.exit_code}")
        for call in (sandbox.read("f"), sandbox.write("f", b"x")):
            try:
                await call
            except RefusedError:
                outcomes.add("refused")
    return outcomes


@pytest.mark.parametrize("ruin", RUINS)
async def test_children_that_ruin_the_working_folder_for_ever_harm_their_own_programs_alone(
    walls: Backend, ruin: str
) -> None:
    async with another(walls) as sandbox:
        assert (await sandbox.run(f"{SIX}{RUINS[ruin]}\nsix(ruin)\n'begun'")).stdout == b"'begun'\n"
        outcomes = await tried(sandbox)
        assert outcomes <= {"ran", "refused", "failed with 125"}
        await sandbox.run(END)
        assert (await python(sandbox, "import os; print(os.getcwd())")).stdout == b"/tmp/work\n"
        await assert_serves(sandbox)


HUNTER = """
import os
session = os.getpid()
if os.fork() == 0:
    while True:
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, session, os.getpid()):
                try: os.kill(int(name), 9)
                except OSError: pass
"""


async def test_a_program_that_is_killed_before_it_begins_has_a_result(walls: Backend) -> None:
    async with another(walls) as sandbox:
        await sandbox.run(HUNTER)
        results = [await sandbox.exec(Python("import time; time.sleep(60)")) for _ in range(6 * ROUNDS)]
        assert {result.exit_code for result in results} == {-9}
        await sandbox.run(END)
        await assert_serves(sandbox)


COMET = """
import os
while True:
    try:
        if os.fork(): os._exit(0)
    except OSError: pass
"""


async def test_what_forks_faster_than_it_is_found_takes_the_session_along(walls: Backend) -> None:
    async with another(walls) as sandbox:
        await sandbox.run("x = 1")
        eight = "    for _ in range(8):\n        if os.fork() == 0: break\n"
        many = f"import os\ntry:\n{eight}except OSError: pass\n{COMET}"
        assert (await python(sandbox, many)).exit_code == 0
        assert await processes(sandbox) <= 1  # the session, if it was spared
        kept = (await sandbox.run("x")).stdout
        assert kept in (b"1\n", b"")
        await sandbox.run(END)
        await assert_serves(sandbox)


def test_the_warden_gives_up_the_session_and_never_the_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, killed = Tree(), list[int]()
    tree.me = 1
    monkeypatch.setattr("agentrl_sandbox.inside.tree.ENDING_S", 0.0)
    monkeypatch.setattr("agentrl_sandbox.inside.tree.os.kill", lambda pid, number: killed.append(pid))
    monkeypatch.setattr("agentrl_sandbox.inside.tree.os.wait3", lambda options: (0, 0, None))
    monkeypatch.setattr("agentrl_sandbox.inside.tree.os.listdir", lambda path: [str(os.getpid())])  # always one more
    tree.kill(spared=2)
    assert killed[-1] == -1


async def test_what_a_dead_session_has_left_running_goes_before_the_next_program() -> None:
    async with another(backend("process")) as sandbox:
        fork = (
            "import os, time\nchild = os.fork()\nif child == 0:\n    while True: time.sleep(0.01)\n(os.getpid(), child)"
        )
        session, child = eval((await sandbox.run(fork)).stdout)  # noqa: S307 (two numbers of our own)
        os.kill(session, 9)
        while (found := proc.process(session)) and found.state != b"Z":
            pass
        assert await printed(sandbox, f"import os; print(os.path.exists('/proc/{child}'))") == "False"


# --- tracing, signals, pipes --------------------------------------------------------------------------------------

TRACED = "import ctypes, os\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True)\nos.kill(os.getpid(), 19)"


async def test_a_program_that_has_the_warden_trace_it_is_killed() -> None:
    async with another(backend("process")) as sandbox:
        result = await sandbox.exec(Python(TRACED), limits=replace(TIGHT, wall_s=5))
        assert (result.exit_code, result.stdout) == (-9, b"0\n")
        assert (await python(sandbox, "print('next')")).stdout == b"next\n"


async def test_a_flood_of_signals_does_not_keep_the_warden_from_its_clock(walls: Backend) -> None:
    async with another(walls) as sandbox:
        flood = (
            "import os\nfor _ in range(3): os.fork()\nwhile True:\n    try: os.kill(1, 17)\n    except OSError: pass"
        )
        result = await sandbox.exec(Python(flood), limits=replace(TIGHT, wall_s=1.0))
        assert result.hits == {Limit.TIME}
        await assert_serves(sandbox)


def a_job(order: Order) -> Job:
    process = object.__new__(Process)
    process.stdin = process.source = process.codes = process.begun = -1
    process.stdout, process.stderr = os.open("/", os.O_RDONLY), os.memfd_create("endless")
    return Job(order, process)


def test_a_pipe_that_cannot_be_read_has_ended() -> None:
    job = a_job(Order(wire.pack("python", 1, 1, 100, 0, b"", "pass")))
    assert not job.take(job.process.stdout)  # EISDIR; of a pipe it would be ENODATA
    os.close(job.process.stdout)
    os.close(job.process.stderr)


def test_a_writer_that_never_stops_does_not_block_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job(Order(wire.pack("python", 1, 1, 1 << 20, 0, b"", "pass")))
    reads: list[int] = []
    monkeypatch.setattr("agentrl_sandbox.inside.job.os.read", lambda fd, most: reads.append(fd) or b"x")
    assert job.take(job.process.stderr)
    monkeypatch.undo()
    assert 0 < len(reads) < 1000
    os.close(job.process.stdout)
    os.close(job.process.stderr)


FORGER = """
import os, threading
def forge():
    while not os.path.exists("go"): pass
    os.write(4, b"0" * 100)
    open("gone", "w").close()
threading.Thread(target=forge).start()
"""


async def test_exit_codes_that_were_forged_between_two_cells_do_not_end_the_next(walls: Backend) -> None:
    async with another(walls) as sandbox:
        await sandbox.run(FORGER)
        assert (await sandbox.exec(shell("touch go; while [ ! -e gone ]; do :; done"))).is_ok
        result = await sandbox.run("6 * 7")
        assert (result.exit_code, result.stdout) == (0, b"42\n")


def test_a_payload_of_very_many_fields_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="more than"):
        wire.unpack(bytes(4 * (wire.MAX_FIELDS + 1)))
    with pytest.raises(ValueError, match="a sandbox accepts"):
        wire.pack(*[b""] * (wire.MAX_FIELDS + 1))
    most = [b""] * wire.MAX_FIELDS
    assert wire.unpack(wire.pack(*most)) == most


def test_what_was_killed_is_waited_for_though_it_has_lost_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    marks, states = iter([{"a": [7]}, {}, {}, {}]), iter([5, 5, 5, None, None])
    monkeypatch.setattr(leases, "marked", lambda: next(marks))
    monkeypatch.setattr(leases, "_started", lambda pid: next(states))
    monkeypatch.setattr("agentrl_sandbox.leases.os.kill", lambda pid, number: None)
    assert leases.kill_marked({"a"}, 10.0) == {"a": 1}
    assert next(states) is None
    assert next(states, "all") == "all"


# --- the warden as an aim -----------------------------------------------------------------------------------------

AIMED = {
    "open files": "resource.prlimit(PID, resource.RLIMIT_NOFILE, (3, 3))",
    "processor time": "resource.prlimit(PID, resource.RLIMIT_CPU, (1, 1))",
    "memory": "resource.prlimit(PID, resource.RLIMIT_AS, (1 << 28, 1 << 28))",
    "size of files": "resource.prlimit(PID, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
    "priority": "os.setpriority(os.PRIO_PROCESS, PID, 5)",
    "priority of its group": "os.setpriority(os.PRIO_PGRP, os.getpgid(PID) if PID else 0, 5)",
    "processors": "os.sched_setaffinity(PID, [max(os.sched_getaffinity(0))])",
    "scheduling": "os.sched_setscheduler(PID, os.SCHED_BATCH, os.sched_param(0))",
    "priority of its input and output": "call(251, 1, PID, 3 << 13)",
}
TRY = """
import ctypes, errno, os, resource, signal
def call(*args):
    if ctypes.CDLL(None, use_errno=True).syscall(*args) == -1:
        raise OSError(ctypes.get_errno(), "refused")
def tried(pid):
    try:
        STATEMENT
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
    except ValueError as error:  # of resource.prlimit, for EPERM
        return "EPERM"
print(tried(0), tried(1))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("what", AIMED)
async def test_a_program_changes_its_own_bounds_and_never_the_wardens(sandbox: Sandbox, what: str) -> None:
    own, wardens = (await printed(sandbox, TRY.replace("STATEMENT", AIMED[what].replace("PID", "pid")))).split()
    assert own in ("done", "ENOSYS", "EPERM")
    assert wardens in ("EPERM", "EACCES", "ENOSYS", "ESRCH")
    await assert_serves(sandbox)


SIGNALS = {
    "kill": "os.kill(1, number)",
    "tgkill": "call(234, 1, 1, number)",
    "tkill": "call(200, 1, number)",
    "rt_sigqueueinfo": "call(129, 1, number, info)",
    "rt_tgsigqueueinfo": "call(297, 1, 1, number, info)",
    "pidfd_send_signal": "signal.pidfd_send_signal(os.pidfd_open(1), number)",
}
SEND = """
import ctypes, os, signal, struct
info = ctypes.create_string_buffer(struct.pack("iii", 0, 0, -1), 128)
def call(*args): ctypes.CDLL(None, use_errno=True).syscall(*args)
for number in range(1, 65):
    try: STATEMENT
    except (OSError, ValueError): pass
print("tried")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("how", SIGNALS)
async def test_no_way_of_sending_signals_reaches_the_warden(sandbox: Sandbox, how: str) -> None:
    assert await printed(sandbox, SEND.replace("STATEMENT", SIGNALS[how])) == "tried"
    await assert_serves(sandbox)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("number", [256, 279, 311])  # migrate_pages, move_pages, process_vm_writev
async def test_the_memory_of_the_warden_cannot_be_moved_or_written(sandbox: Sandbox, number: int) -> None:
    source = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 1, 1, 0, 0, 0, 0))"
    assert await printed(sandbox, source) == "-1"


# --- processor time -----------------------------------------------------------------------------------------------

HIDING = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + EACH
        while time.process_time() < end: pass
        os._exit(0)
    try: os.wait()
    except OSError: pass
"""


def has_clock() -> bool:
    made = cgroups.cage("agentrl-0000000000000000")
    return made is not None and any(meter.limit == "cpu" for meter in made.meters())


async def test_processor_time_of_children_that_nobody_waits_for_counts(walls: Backend) -> None:
    if walls.name == "bubblewrap" and not has_clock():
        pytest.skip("no control group counts processor time here")
    async with another(walls) as sandbox:
        hidden = await sandbox.exec(Python(HIDING.replace("EACH", "0.02")), limits=replace(TIGHT, cpu_s=1, wall_s=30))
        assert hidden.hits == {Limit.CPU}
        assert 0.9 < hidden.cpu_s < 3
        assert (await python(sandbox, "pass")).cpu_s < 1


async def test_without_control_groups_such_time_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "cage", lambda lease_id: None)
    async with another(backend("process")) as sandbox:
        limits = replace(TIGHT, memory_bytes=1 << 30, cpu_s=2, wall_s=40)
        hidden = await sandbox.exec(Python(HIDING.replace("EACH", "0.8")), limits=limits)
        assert hidden.hits == {Limit.CPU}


def test_a_child_that_is_waited_for_while_we_look_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, sums = Tree(), iter([5.0, 3.0, 5.0, 4.0, 4.0, 6.0])
    monkeypatch.setattr(tree, "_sum_s", lambda is_idle: next(sums))
    assert [tree.cpu_s() for _ in range(4)] == [5.0, 5.0, 5.0, 7.0]

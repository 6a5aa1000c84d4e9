"""What every backend promises: programs, sessions, streams, files, snapshots, limits and results."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from agentrl_sandbox import (
    ClosedError,
    Command,
    ExecResult,
    Limit,
    Limits,
    LostError,
    Pool,
    Python,
    RefusedError,
    Sandbox,
    SandboxError,
    Snapshot,
    Stream,
    UnavailableError,
    boot,
    choose,
    leases,
    shell,
)
from agentrl_sandbox.backends.process import InsecureSandboxWarning
from agentrl_sandbox.types import MINIMUM

from tests.sandbox.conftest import LOCAL, TIGHT, WALLED, backend, running


async def test_a_python_program_ends_as_it_would_by_itself(any_sandbox: Sandbox) -> None:
    source = "import sys\nprint(sys.argv[1:], __name__, input())\nprint('bad', file=sys.stderr)\nsys.exit(3)"
    result = await any_sandbox.exec(Python(source, ("a", "ü")), stdin=b"line\n")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "['a', 'ü'] __main__ line\n".encode(), b"bad\n")
    assert result.hits == frozenset()
    assert not result.is_ok
    assert 0 < result.cpu_s < 2  # of a process that was started before the clock: more than wall_s, where that is short
    assert result.peak_memory_bytes > 1 << 20


async def test_processes_are_forked(any_sandbox: Sandbox) -> None:
    source = "import multiprocessing\ndef f(n): return n + 1\nprint(multiprocessing.Pool(2).map(f, range(3)))"
    result = await any_sandbox.exec(Python(source))
    assert (result.stdout, result.stderr) == (b"[1, 2, 3]\n", b"")


async def test_localhost_resolves_in_the_sandbox(any_sandbox: Sandbox) -> None:
    source = "import socket; print(*sorted({a[4][0] for a in socket.getaddrinfo('localhost', 80)}))"
    result = await any_sandbox.exec(Python(source))
    assert result.stderr == b""
    assert b"127.0.0.1" in result.stdout


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("pass", 0),
        ("raise ValueError('x')", 1),
        ("import sys; sys.exit('message')", 1),
        ("exit()", 0),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("import threading; threading.Thread(target=lambda: print('late')).start()", 0),
        ("import atexit; atexit.register(print, 'late')", 0),
        ("def f(): f()\nf()", 1),
        ("import sys; sys.stdout = None; sys.stderr = None", 0),
        ("import sys; sys.stdout.close()", 0),
        ("import os; print(1); os.close(1)", 120),
    ],
)
async def test_exit_codes_are_those_of_an_interpreter(any_sandbox: Sandbox, source: str, code: int) -> None:
    result = await any_sandbox.exec(Python(source))
    assert result.exit_code == code, result
    assert (b"late" in result.stdout) == ("late" in source)


async def test_a_traceback_shows_the_program_and_nothing_of_ours(any_sandbox: Sandbox) -> None:
    result = await any_sandbox.exec(Python("def f():\n    return 1 / 0\nf()"))
    lines = result.stderr.decode().splitlines()
    assert lines[1:] == ['  File "<program>", line 3, in <module>', '  File "<program>", line 2, in f', lines[-1]]
    assert lines[-1] == "ZeroDivisionError: division by zero"


async def test_the_input_is_a_file_that_can_be_measured_and_reread_and_not_written(any_sandbox: Sandbox) -> None:
    source = """
import os, sys
size = os.fstat(0).st_size
printed = sys.stdin.read(), open("/dev/stdin").read(), sys.stdin.seek(0), sys.stdin.read()
try: os.write(0, b"x")
except OSError: size += 100
print(size, *printed)
"""
    for program in (Python(source), Command((sys.executable, "-c", source))):
        result = await any_sandbox.exec(program, stdin=b"42")
        if b"python" not in result.stderr:  # an image may have its interpreter elsewhere
            assert (result.stdout, result.exit_code) == (b"102 42 42 0 42\n", 0), result
    assert (await any_sandbox.exec(Python("print([open(0).read()], __file__)"))).stdout == b"[''] <program>\n"


async def test_a_program_inherits_no_future_of_ours(any_sandbox: Sandbox) -> None:
    source = "def f(x: int): pass\nassert f.__annotations__['x'] is int"
    assert (await any_sandbox.exec(Python(source))).exit_code == 0
    assert (await any_sandbox.run(source)).exit_code == 0


async def test_a_command_runs_in_the_working_folder_with_its_input(any_sandbox: Sandbox) -> None:
    result = await any_sandbox.exec(shell("cat > copy; pwd; wc -c < copy; echo $HOME; exit 4"), stdin=b"x" * 200_000)
    folder, size, home = result.stdout.decode().split()
    assert (result.exit_code, size) == (4, "200000")
    assert folder == home
    assert await any_sandbox.read("copy") == b"x" * 200_000


async def test_programs_start_from_nothing_and_sessions_from_where_they_were(any_sandbox: Sandbox) -> None:
    assert (await any_sandbox.exec(Python("x = 1"))).is_ok
    assert (await any_sandbox.exec(Python("x"))).exit_code == 1
    assert (await any_sandbox.run("x = 40")).is_ok
    assert (await any_sandbox.run("def f(): return x + 2\nf()")).stdout == b"42\n"
    failed = await any_sandbox.run("1 / 0")
    assert failed.exit_code == 1
    assert b"ZeroDivisionError" in failed.stderr
    assert not failed.is_state_lost
    assert (await any_sandbox.run("f()")).stdout == b"42\n"


def with_hash_seed_0(source: str) -> bytes:
    words = [boot.interpreter(), "-c", source]
    return subprocess.run(words, env={"PYTHONHASHSEED": "0"}, capture_output=True, check=True).stdout


async def test_a_set_has_one_order_whatever_runs_it(any_sandbox: Sandbox) -> None:
    source = "print(*{str(i) for i in range(40)})"
    everywhere = with_hash_seed_0(source)
    inner = (
        f"import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {source!r}]).decode(), end='')"
    )
    assert (await any_sandbox.exec(Python(source))).stdout == everywhere
    assert (await any_sandbox.run(source)).stdout == everywhere
    assert (await any_sandbox.exec(Python(inner))).stdout == everywhere


async def test_a_session_out_of_time_is_interrupted_and_keeps_its_state(any_sandbox: Sandbox) -> None:
    await any_sandbox.run("x = 1")
    result = await any_sandbox.run("x = 2\nwhile True: pass", limits=replace(TIGHT, wall_s=0.3))
    assert result.hits == {Limit.TIME}
    assert not result.is_state_lost
    assert b"KeyboardInterrupt" in result.stderr
    assert (await any_sandbox.run("x")).stdout == b"2\n"


async def test_what_a_session_does_between_two_runs_counts_for_the_second(any_sandbox: Sandbox) -> None:
    spin = "def spin():\n    while time.thread_time() < 0.3: pass\n"
    start = "thread = threading.Thread(target=spin)\nthread.start()"
    first = await any_sandbox.run(f"import threading, time\n{spin}{start}")
    async with asyncio.timeout(20):
        while _cpu_s(any_sandbox) < 0.25:  # noqa: ASYNC110  (the kernel tells no event)
            await asyncio.sleep(0)
    second = await any_sandbox.run("thread.join()")
    assert first.cpu_s + second.cpu_s >= 0.2  # the kernel counts in hundredths


def _cpu_s(sandbox: Sandbox) -> float:
    """CPU time of its processes, as the host counts it."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in leases.marked()[sandbox.id]]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


async def test_a_session_that_dies_says_that_its_state_is_lost(any_sandbox: Sandbox) -> None:
    await any_sandbox.run("x = 1")
    died = await any_sandbox.run("import os; os._exit(5)")
    assert (died.exit_code, died.is_state_lost) == (5, True)
    anew = await any_sandbox.run("'x' in globals()")
    assert (anew.stdout, anew.is_state_lost) == (b"False\n", False)


async def test_output_is_heard_while_the_program_runs(any_sandbox: Sandbox) -> None:
    heard: list[tuple[Stream, bytes]] = []
    first = asyncio.Event()

    def hear(stream: Stream, data: bytes) -> None:
        heard.append((stream, data))
        first.set()

    source = "import sys, time\nprint('one', flush=True)\nwhile True: time.sleep(1)"
    running = asyncio.create_task(any_sandbox.exec(Python(source), limits=replace(TIGHT, wall_s=3), on_output=hear))
    async with asyncio.timeout(20):
        await first.wait()
    assert not running.done()
    assert (await running).stdout == b"one\n"
    assert heard == [(Stream.STDOUT, b"one\n")]


async def test_files_come_back_as_they_went(any_sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 1000
    await any_sandbox.write("a/b/c.bin", b"longer than what follows" + content)
    await any_sandbox.write("a/b/c.bin", content)
    assert await any_sandbox.read("./a//b/c.bin") == content
    assert (await any_sandbox.exec(shell("wc -c < a/b/c.bin"))).stdout.strip() == b"256000"
    assert await any_sandbox.read("a/b/c.bin", len(content)) == content
    with pytest.raises(RefusedError, match="it has more than 255999 bytes"):
        await any_sandbox.read("a/b/c.bin", len(content) - 1)
    assert any_sandbox.is_healthy()
    with pytest.raises(RefusedError, match="No such file"):
        await any_sandbox.read("a/x")


async def test_a_file_that_does_not_fit_is_refused(any_sandbox: Sandbox) -> None:
    with pytest.raises(RefusedError, match=r"No space|too large"):
        await any_sandbox.write("big", bytes(TIGHT.disk_bytes + 1))


async def test_a_snapshot_is_the_working_folder_and_can_be_restored_elsewhere(any_sandbox: Sandbox) -> None:
    await any_sandbox.exec(shell("mkdir -p d; echo one > d/f; ln -s d/f link; mkfifo pipe; chmod +x d/f"))
    taken = await any_sandbox.snapshot()
    await any_sandbox.write("d/f", b"two")
    other = await backend("bubblewrap").create(TIGHT)
    for place in (any_sandbox, other):
        await place.restore(taken)
        result = await place.exec(shell("cat link; test -x d/f && echo executable"))
        assert result.stdout == b"one\nexecutable\n"
    await other.close()


async def test_a_snapshot_keeps_second_names_and_replaces_files_that_are_read_only(any_sandbox: Sandbox) -> None:
    await any_sandbox.exec(shell("echo one > f; ln f g; chmod 444 f"))
    taken = await any_sandbox.snapshot()
    await any_sandbox.exec(shell("rm -f f; echo two > f; chmod 444 f"))
    await any_sandbox.restore(taken)
    assert (await any_sandbox.exec(shell("cat f g; test f -ef g && echo same"))).stdout == b"one\none\nsame\n"


async def test_what_is_no_snapshot_is_refused(any_sandbox: Sandbox) -> None:
    with pytest.raises(RefusedError, match="restore"):
        await any_sandbox.restore(Snapshot(b"no archive"))


async def test_calls_at_once_wait_for_each_other(any_sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(any_sandbox.exec(Python(f"print({number})")) for number in range(5)))
    assert [result.stdout for result in results] == [f"{number}\n".encode() for number in range(5)]


async def endless_call(sandbox: Sandbox) -> asyncio.Task[ExecResult]:
    """A call that has begun and never ends."""
    began = asyncio.Event()
    source = Python("print('on', flush=True)\nwhile True: pass")
    running = asyncio.create_task(sandbox.exec(source, on_output=lambda *_: began.set()))
    async with asyncio.timeout(20):
        await began.wait()
    return running


@pytest.mark.parametrize("name", WALLED)
async def test_a_sandbox_that_does_not_begin_leaves_nothing_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(channel: object, *, is_compiled: bool) -> None:
        raise LostError("lost")

    found = backend(name)
    monkeypatch.setattr(boot, "load", fail)
    with warnings.catch_warnings(record=True, category=ResourceWarning) as caught:
        warnings.simplefilter("always")
        with suppress(LostError):
            await found.create(TIGHT)
        gc.collect()
    assert not caught
    assert not running()


async def test_a_cancelled_call_ends_the_sandbox(any_sandbox: Sandbox) -> None:
    running = await endless_call(any_sandbox)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any_sandbox.is_healthy()
    with pytest.raises(ClosedError):
        await any_sandbox.exec(Python("pass"))


async def test_killing_ends_a_call_and_closing_twice_is_fine(any_sandbox: Sandbox) -> None:
    running = await endless_call(any_sandbox)
    any_sandbox.kill()
    with pytest.raises(SandboxError) as lost:
        await running
    assert lost.value.fault == "infra"
    await asyncio.gather(any_sandbox.close(), any_sandbox.close())
    assert any_sandbox.id not in {lease.id for lease in leases.recorded()}
    assert any_sandbox.id not in leases.marked()


# --- choice -----------------------------------------------------------------------------------------------------


def test_an_unknown_backend_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnavailableError, match="Did you mean 'docker'"):
        choose("dokcer")


def test_a_missing_backend_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from agentrl_sandbox.backends import bubblewrap

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    bubblewrap.missing.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="apt-get install bubblewrap"):
            choose("bubblewrap")
        with pytest.raises(UnavailableError, match="start dockerd"):
            choose("docker")
        with pytest.raises(UnavailableError, match="'process', which is no security boundary"):
            choose()
    finally:
        bubblewrap.missing.cache_clear()


@pytest.mark.parametrize(("name", "module"), [("docker", "docker"), ("remote", "httpx")])
def test_a_backend_whose_package_is_not_installed_is_refused_with_what_to_do(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"agentrl_sandbox.backends.{name}", raising=False)
    monkeypatch.delitem(sys.modules, f"agentrl_sandbox.backends.{name}_httpx", raising=False)
    with pytest.raises(UnavailableError, match=f"{name}: {module} is not installed. pip install {module}"):
        choose(name)


def test_a_remote_backend_without_an_address_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="AGENTRL_SANDBOX_URL"):
        choose("remote")


def test_the_process_backend_says_loudly_that_it_is_no_boundary() -> None:
    with pytest.warns(InsecureSandboxWarning, match="NO security boundary"):
        choose("process")


def test_the_best_backend_is_chosen_and_says_what_holds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", InsecureSandboxWarning)
        chosen = backend("auto")
    assert chosen.name in ("bubblewrap", "docker")
    assert "memory and processes by" in chosen.describe()


@pytest.mark.parametrize("field", ["wall_s", "memory_bytes", "processes"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_limits_are_finite(field: str, value: float) -> None:
    with pytest.raises((ValueError, TypeError), match=field):
        Limits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("memory_bytes", 1e7, "it must be a whole number"),
        ("processes", 2.5, "it must be a whole number"),
        ("open_files", True, "it must be a whole number"),
        ("cpu_s", True, "it must be a number"),
    ],
)
def test_limits_that_count_need_whole_numbers(field: str, value: float, fix: str) -> None:
    with pytest.raises(TypeError, match=rf"Limits\.{field} is {value}; {fix}"):
        Limits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["wall_s", "cpu_s", "output_bytes", "memory_bytes", "processes", "cpus"])
@pytest.mark.parametrize("value", [10**400, 10**30])
def test_limits_beyond_any_machine_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{field} is 10000.*; it must be .* at most") as refused:
        Limits(**{field: value})  # type: ignore[arg-type]
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("field", "value"), [("memory_bytes", 1), ("processes", 1), ("open_files", 4), ("disk_bytes", 1), ("cpus", 1e-9)]
)
def test_limits_too_small_to_run_anything_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{field} is {value}; it must be .* at least"):
        Limits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOCAL)
async def test_the_least_limits_run_a_program(name: str) -> None:
    async with Pool(backend(name), Limits(**MINIMUM)) as pool, pool.lease() as sandbox:  # type: ignore[arg-type]
        assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
        assert (await sandbox.run("2")).stdout == b"2\n"
        await sandbox.write("a", b"b")
        assert await sandbox.read("a") == b"b"


def test_limits_are_numbers() -> None:
    with pytest.raises(TypeError, match=r"Limits\.memory_bytes is '512M'; it must be a whole number"):
        Limits(memory_bytes="512M")  # type: ignore[arg-type]


async def test_a_bare_string_is_no_program(any_sandbox: Sandbox) -> None:
    with pytest.raises(TypeError, match=r"exec\('print\(1\)'\): pass Python\(source\), Command\(words\) or shell"):
        await any_sandbox.exec("print(1)")  # type: ignore[arg-type]
    assert (await any_sandbox.exec(Python("print(1)"))).stdout == b"1\n"


def test_a_command_is_a_tuple_of_words() -> None:
    with pytest.raises(ValueError, match="tuple of words"):
        Command("ls -l")  # type: ignore[arg-type]


def test_ok_means_zero_within_the_limits() -> None:
    result = ExecResult(0, b"", b"", frozenset(), 0.1, 0.1, 1)
    assert result.is_ok
    assert not replace(result, hits=frozenset({Limit.MEMORY})).is_ok
    assert not replace(result, exit_code=1).is_ok


async def test_a_run_may_begin_in_an_empty_folder(any_sandbox: Sandbox) -> None:
    nested = "import os\nfor _ in range(1200): os.mkdir('a'); open('f', 'w'); os.chdir('a')"
    assert (await any_sandbox.exec(Python(nested))).is_ok
    await any_sandbox.write("kept/file", b"x")
    listed = Python("import os; print(sorted(os.listdir()))")
    assert (await any_sandbox.exec(listed)).stdout == b"['a', 'f', 'kept']\n"
    result = await any_sandbox.exec(listed, is_clean=True)
    assert (result.exit_code, result.stdout) == (0, b"[]\n"), result.stderr


HELD = "out = open(1, 'w', closefd=False)\nout.write('b')\n"
DAEMON = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"


@pytest.mark.parametrize(
    "source",
    [
        f"{HELD}class C: held = out\ndel out",
        f"{HELD}cycle = [out]\ncycle.append(cycle)\ndel cycle, out",
        f"{HELD}import math\nmath.held = out",
        f"{HELD}import builtins\nbuiltins.held = out",
        f"{HELD}import colorsys\ncolorsys.held = out\ncolorsys.me = colorsys",
        f"{HELD}{DAEMON}",
        f"{HELD}{DAEMON}class C: held = out",
        "class C:\n    def __del__(self): print('b')\nc = C()\nc.me = c",
        "class C:\n    def __del__(self): print('b')\nclass D: held = C()",
        "import sys\nout = open(1, 'wb', closefd=False)\nout.write(b'b')\nsys.path_hooks.append(out)",
    ],
)
async def test_what_python_writes_at_its_end_is_written(any_sandbox: Sandbox, source: str) -> None:
    result = await any_sandbox.exec(Python(f"print('a')\n{source}"))
    assert (result.stdout.split(), result.stderr, result.exit_code) == ([b"a", b"b"], b"", 0)

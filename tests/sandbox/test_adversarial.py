"""Programs that want out, or want everything: at least one test for each line of agentrl_sandbox's docstring."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from agentrl_sandbox import Command, ExecResult, Limit, Python, RefusedError, Sandbox, leases, shell
from agentrl_sandbox.inside import wire

from tests.sandbox.conftest import TIGHT, backend

SHORT = replace(TIGHT, wall_s=2.0)


async def python(sandbox: Sandbox, source: str, *args: str) -> ExecResult:
    return await sandbox.exec(Python(source, args))


async def said(sandbox: Sandbox, source: str, *args: str) -> str:
    """What a program prints that must run to its end."""
    result = await python(sandbox, source, *args)
    assert result.is_ok, result
    return result.stdout.decode().strip()


async def processes(sandbox: Sandbox) -> int:
    """How many processes there are beside the warden and the one that counts."""
    return int(await said(sandbox, "import os; print(sum(name.isdigit() for name in os.listdir('/proc')) - 2)"))


async def assert_serves(sandbox: Sandbox) -> None:
    """It still does what it is for, and nothing is left of what ran before."""
    assert await processes(sandbox) == 0


def attempt(statement: str) -> str:
    """A program that prints the error of a statement, or `done`."""
    body = f"    {statement}\n    print('done')\n"
    return f"import os, socket\ntry:\n{body}except OSError as error:\n    print(error.errno)\n"


# --- fork bombs -------------------------------------------------------------------------------------------------

FORK_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"


async def test_a_fork_bomb_ends_at_the_limit_of_processes_and_with_the_run(sandbox: Sandbox) -> None:
    result = await sandbox.exec(Python(FORK_BOMB), limits=SHORT)
    assert result.hits >= {Limit.PROCESSES, Limit.TIME}
    await assert_serves(sandbox)


async def test_a_fork_bomb_of_orphans_ends_too(sandbox: Sandbox) -> None:
    step = "        if os.fork(): os._exit(0)\n        os.setsid()\n"
    bomb = f"import os\nwhile True:\n    try:\n{step}    except OSError: pass\n"
    result = await sandbox.exec(Python(bomb), limits=SHORT)
    assert result.exit_code == 0  # the first of them ended at once, and took the others along
    await assert_serves(sandbox)


# --- memory -----------------------------------------------------------------------------------------------------


async def test_filling_memory_ends_the_program_and_not_the_sandbox(sandbox: Sandbox) -> None:
    result = await python(sandbox, f"x = bytearray({4 * TIGHT.memory_bytes})")
    assert Limit.MEMORY in result.hits
    assert not result.is_ok
    await assert_serves(sandbox)


async def test_memory_is_limited_for_all_processes_together(sandbox: Sandbox) -> None:
    each = TIGHT.memory_bytes // 3
    wait = "for _ in range(15):\n    try: os.wait()\n    except OSError: break"
    source = f"import os\nfor _ in range(4): os.fork()\nx = bytearray({each})\n{wait}"
    assert Limit.MEMORY in (await python(sandbox, source)).hits
    await assert_serves(sandbox)


async def test_a_session_that_fills_memory_loses_its_state_and_says_so(sandbox: Sandbox) -> None:
    await sandbox.run("x = 1")
    result = await sandbox.run(f"y = bytearray({4 * TIGHT.memory_bytes})")
    assert Limit.MEMORY in result.hits
    assert result.is_state_lost
    assert (await sandbox.run("'x' in globals()")).stdout == b"False\n"
    await sandbox.run("import os; os._exit(0)")


# --- disk -------------------------------------------------------------------------------------------------------

FILL = """
import os
written = number = 0
try:
    while True:
        with open(f"{number}", "wb", 0) as file:
            written += file.write(bytes(1 << 20))
        number += 1
except OSError as error:
    print(error.errno, written)
"""


async def test_files_are_limited_for_all_of_them_together(sandbox: Sandbox) -> None:
    result = await python(sandbox, FILL)
    assert Limit.DISK in result.hits
    assert int(result.stdout.split()[1]) <= TIGHT.disk_bytes
    assert (await sandbox.exec(shell("rm -f /tmp/work/*"))).exit_code == 0


async def test_one_file_is_no_larger_than_all_may_be(sandbox: Sandbox) -> None:
    result = await sandbox.exec(shell("head -c 100000000 /dev/zero > big; wc -c < big; rm big"))
    assert int(result.stdout) <= TIGHT.disk_bytes


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/etc/x", "/usr/bin/sh", "/dev/x", "/proc/x", "/sys/x", "/root/x"])
async def test_the_system_is_read_only(sandbox: Sandbox, path: str) -> None:
    assert (await said(sandbox, attempt(f"os.open({path!r}, os.O_WRONLY | os.O_CREAT)"))).isdigit()


async def test_the_interpreter_is_read_only(sandbox: Sandbox) -> None:
    assert (await said(sandbox, attempt("os.open(os.__file__, os.O_WRONLY)"))).isdigit()


# --- output -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [1, 2])
async def test_an_output_flood_ends_the_run_at_the_limit(sandbox: Sandbox, stream: int) -> None:
    result = await python(sandbox, f"import os\nwhile True: os.write({stream}, b'x' * 65536)")
    assert result.hits == {Limit.OUTPUT}
    assert len(result.stdout) + len(result.stderr) == TIGHT.output_bytes
    assert result.wall_s < TIGHT.wall_s
    await assert_serves(sandbox)


async def test_a_flood_by_descendants_counts_too(sandbox: Sandbox) -> None:
    result = await sandbox.exec(shell("for i in 1 2 3; do (while :; do echo flood; done) & done; wait"))
    assert result.hits == {Limit.OUTPUT}
    await assert_serves(sandbox)


async def test_output_of_any_bytes_comes_as_it_is(sandbox: Sandbox) -> None:
    every = bytes(range(256)) * 100
    result = await sandbox.exec(Python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"), stdin=every)
    assert result.stdout == every


# --- endless loops ----------------------------------------------------------------------------------------------

STUBBORN = """
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
"""


async def test_an_endless_loop_that_swallows_signals_ends_at_the_wall_limit(sandbox: Sandbox) -> None:
    result = await sandbox.exec(Python(STUBBORN + "while True: time.sleep(1)"), limits=replace(TIGHT, wall_s=0.5))
    assert result.hits == {Limit.TIME}
    assert result.exit_code == -9
    await assert_serves(sandbox)


async def test_cpu_time_is_limited(sandbox: Sandbox) -> None:
    result = await sandbox.exec(Python(STUBBORN + "while True: pass"), limits=replace(TIGHT, cpu_s=0.5, wall_s=40))
    assert result.hits == {Limit.CPU}
    assert 0.5 <= result.cpu_s < 3


async def test_cpu_time_of_all_processes_counts_together(sandbox: Sandbox) -> None:
    source = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    result = await sandbox.exec(Python(source), limits=replace(TIGHT, cpu_s=0.5, wall_s=40))
    assert result.hits == {Limit.CPU}
    await assert_serves(sandbox)


async def test_a_session_that_swallows_interrupts_is_killed(sandbox: Sandbox) -> None:
    await sandbox.run("x = 1")
    result = await sandbox.run(STUBBORN + "while True: pass", limits=replace(TIGHT, wall_s=0.5))
    assert result.hits == {Limit.TIME}
    assert result.is_state_lost
    await assert_serves(sandbox)


# --- the host and other sandboxes -------------------------------------------------------------------------------


async def test_files_of_the_host_cannot_be_seen(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cr3t")
    secret.chmod(0o644)
    for path in (
        str(secret),
        "/etc/shadow",
        str(Path.home() / ".bashrc"),
        str(Path(__file__)),
        "/proc/1/root/etc/shadow",
    ):
        assert await said(sandbox, attempt(f"open({path!r}).read()")) in ("2", "13", "1"), path


async def test_environment_and_processes_of_the_host_cannot_be_seen(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cr3t")
    fresh = await backend("bubblewrap").create(TIGHT)
    for place in (sandbox, fresh):
        assert "HOST_SECRET" not in await said(place, "import os; print(os.environ)")
        assert await processes(place) == 0
    await fresh.close()


async def test_another_sandbox_cannot_be_seen(sandbox: Sandbox) -> None:
    other = await backend("bubblewrap").create(TIGHT)
    await other.write("secret.txt", b"s3cr3t")
    await other.run("import time")  # a process that lives on
    find = "import os; print(*(os.path.join(p, n) for p, _, ns in os.walk('/tmp') for n in ns if n == 'secret.txt'))"
    assert await said(sandbox, find) == ""
    assert await processes(sandbox) == 0
    await other.close()


NETWORK = """
import socket, sys
for family, address in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_INET, ("10.0.0.1", 80)),
                        (socket.AF_INET6, ("::1", int(sys.argv[1]))), (socket.AF_UNIX, "\\0" + sys.argv[2])):
    with socket.socket(family) as s:
        s.settimeout(2)
        try:
            s.connect(address)
            print("reached", address)
        except OSError: pass
print([name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else ["lo"])
"""


async def test_there_is_no_network(sandbox: Sandbox) -> None:
    abstract = f"agentrl-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0{abstract}")
        local.listen()
        result = await python(sandbox, NETWORK, str(server.getsockname()[1]), abstract)
    assert b"reached" not in result.stdout
    interfaces = (
        "import os; print(sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').read().splitlines()[2:]))"
    )
    assert await said(sandbox, interfaces) == "['lo']"


async def test_a_socket_that_knows_no_network_namespace_cannot_be_made(sandbox: Sandbox) -> None:
    assert (await said(sandbox, attempt("socket.socket(40, socket.SOCK_STREAM).connect((2, 1))"))).isdigit()


async def test_outsiders_cannot_be_signalled(sandbox: Sandbox) -> None:
    for pid in (os.getpid(), os.getppid()):
        assert await said(sandbox, attempt(f"os.kill({pid}, 0)")) == "3"


# --- privileges -------------------------------------------------------------------------------------------------


async def test_a_program_has_no_privileges_and_gets_none(sandbox: Sandbox) -> None:
    status = await said(sandbox, "print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapAmb"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert "0" not in fields["Uid"].split()


@pytest.mark.parametrize(
    "statement",
    [
        "os.setuid(0)",
        "os.setgroups([0])",
        "os.chroot('/tmp')",
        "os.mknod('x', 0o60666, os.makedev(254, 0))",
        "os.nice(-5)",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "os.write(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY), b'x')",
        "os.write(os.open('/proc/sysrq-trigger', os.O_WRONLY), b'b')",
        "os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1')",
        "open('/dev/mem', 'rb').read(1)",
        "open('/proc/kcore', 'rb').read(1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    ],
)
async def test_what_needs_privileges_fails(sandbox: Sandbox, statement: str) -> None:
    assert (await said(sandbox, attempt(statement))).isdigit()


CALLS = {  # system calls by number on x86_64, with arguments that would do harm
    "unshare (user)": (272, 0x10000000),
    "unshare (mount)": (272, 0x00020000),
    "clone (user)": (56, 0x10000000 | 17),
    "setns": (308, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "ptrace (attach to the warden)": (101, 16, 1, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, 0, 0, 0),
    "keyctl": (250, 0, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("name", CALLS)
async def test_system_calls_that_open_walls_fail(sandbox: Sandbox, name: str) -> None:
    source = f"import ctypes; print(ctypes.CDLL(None).syscall({', '.join(map(str, CALLS[name]))}) < 0)"
    assert await said(sandbox, source) == "True"


# --- the warden -------------------------------------------------------------------------------------------------


async def test_the_warden_cannot_be_signalled(sandbox: Sandbox) -> None:
    source = (
        "import os\nfor number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass\nprint('tried')"
    )
    assert await said(sandbox, source) == "tried"
    assert await said(sandbox, attempt("os.kill(-1, 9)")) == "3"  # there is nobody but the warden
    await assert_serves(sandbox)


@pytest.mark.parametrize("path", ["/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/maps", "/proc/1/fd"])
async def test_the_warden_cannot_be_looked_into(sandbox: Sandbox, path: str) -> None:
    opened = f"os.listdir({path!r})" if path.endswith("fd") else f"open({path!r}, 'rb').read(1)"
    assert (await said(sandbox, attempt(opened))).isdigit()


async def test_a_program_has_its_own_three_files_and_no_more(sandbox: Sandbox) -> None:
    source = "import os\nfor fd in range(1024):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
    assert await said(sandbox, source) == "0\n1\n2"


# --- frames -----------------------------------------------------------------------------------------------------


async def test_a_program_cannot_speak_in_the_wardens_name(sandbox: Sandbox) -> None:
    forged = wire.frame(wire.END, wire.pack(0, "", 1, 1, 1, 0, 1), bytes(16))
    source = (
        "import os, sys\nframe = bytes.fromhex(sys.argv[1])\n"
        "for fd in range(64):\n    try: os.write(fd, frame)\n    except OSError: pass\nos._exit(7)"
    )
    result = await python(sandbox, source, forged.hex())
    assert result.exit_code == 7
    assert result.stdout == forged
    assert (await python(sandbox, "print('next')")).stdout == b"next\n"


async def test_a_nonce_is_not_in_the_memory_of_the_program_that_it_vouches_for(sandbox: Sandbox) -> None:
    source = (
        "import gc, sys\nfound = [o for o in gc.get_objects() if type(o).__name__ == 'Job']\n"
        "print(len(found), any('nonce' in vars(o) for o in found))"
    )
    assert await said(sandbox, source) in ("0 False", "1 False")


async def test_a_session_that_forges_its_exit_code_harms_itself_alone(sandbox: Sandbox) -> None:
    await sandbox.run("import os; os.write(4, b'0' * 100)")
    assert (await sandbox.exec(Python("print('fine')"))).stdout == b"fine\n"
    await sandbox.run("import os; os._exit(0)")


# --- links and races --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../outside", "/tmp/outside", "link", "folder/outside", "a/../../outside", "", ".", "a\0b"]
)
async def test_read_and_write_stay_in_the_working_folder(sandbox: Sandbox, path: str) -> None:
    await sandbox.exec(shell("echo secret > /tmp/outside; ln -sf /tmp/outside link; ln -sfn /tmp folder"))
    with pytest.raises(RefusedError):
        await sandbox.read(path)
    with pytest.raises(RefusedError):
        await sandbox.write(path, b"changed")
    assert (await sandbox.exec(shell("cat /tmp/outside"))).stdout == b"secret\n"


async def test_what_is_not_a_regular_file_is_refused_at_once(sandbox: Sandbox) -> None:
    made = "import os, socket\nos.mkfifo('pipe'); os.mkdir('here'); socket.socket(socket.AF_UNIX).bind('socket')"
    assert (await python(sandbox, made)).is_ok
    for path in ("pipe", "here", "socket", "missing", "missing/x", "pipe/x"):
        with pytest.raises(RefusedError):
            await sandbox.read(path)
    for path in ("pipe", "here", "socket", "pipe/x"):
        with pytest.raises(RefusedError):
            await sandbox.write(path, b"x")
    await sandbox.exec(shell("rm -r pipe here socket"))


async def test_a_file_with_another_name_elsewhere_is_not_written(sandbox: Sandbox) -> None:
    await sandbox.exec(shell("echo outside > /tmp/elsewhere; ln -f /tmp/elsewhere hard"))
    with pytest.raises(RefusedError):
        await sandbox.write("hard", b"changed")
    assert (await sandbox.exec(shell("cat /tmp/elsewhere; rm hard"))).stdout == b"outside\n"


RACE = """
import os, threading
os.makedirs("d", exist_ok=True); os.makedirs("/tmp/evil", exist_ok=True)
open("d/f", "w").write("inside"); open("/tmp/evil/f", "w").write("outside")
os.path.lexists("evil") or os.symlink("/tmp/evil", "evil")
def swap():
    while True:
        os.rename("d", "e"); os.rename("evil", "d"); os.rename("d", "evil"); os.rename("e", "d")
threading.Thread(target=swap, daemon=True).start()
"""


async def test_a_race_of_links_leads_neither_read_nor_write_outside(sandbox: Sandbox) -> None:
    await sandbox.run(RACE)
    for _ in range(30):
        try:
            assert await sandbox.read("d/f") in (b"inside", b"written", b"")
            await sandbox.write("d/f", b"written")
        except RefusedError:
            pass
    await sandbox.run("import os; os._exit(0)")
    assert (await sandbox.exec(shell("cat /tmp/evil/f"))).stdout == b"outside"
    await sandbox.exec(shell("rm -rf d e evil"))


async def test_an_archive_that_leads_outside_is_refused(sandbox: Sandbox) -> None:
    import io
    import tarfile

    from agentrl_sandbox import Snapshot

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../tmp/escaped"))
    with pytest.raises(RefusedError):
        await sandbox.restore(Snapshot(content.getvalue()))
    assert await said(sandbox, "import os; print(os.path.exists('/tmp/escaped'))") == "False"


# --- leftovers --------------------------------------------------------------------------------------------------

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    for fd in (0, 1, 2): os.close(fd)
    while True: time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "ending", ["", "while True: time.sleep(1)", "os.kill(os.getpid(), 9)", "while True: print('x' * 9999)"]
)
async def test_nothing_outlives_its_run(sandbox: Sandbox, ending: str) -> None:
    await sandbox.exec(Python(DAEMON + ending), limits=replace(TIGHT, wall_s=0.5))
    await assert_serves(sandbox)


@pytest.mark.parametrize(
    "ruin",
    [
        "shutil.rmtree(work); open(work, 'w').close()",
        "shutil.rmtree(work); os.symlink('/nowhere', work)",
        "shutil.rmtree(work); os.mkfifo(work)",
        "shutil.rmtree(work)",
        "os.chmod(work, 0)",
        "os.getuid() == os.stat('/tmp').st_uid and os.chmod('/tmp', 0)",
    ],
)
async def test_a_program_that_ruins_its_working_folder_does_not_ruin_the_sandbox(sandbox: Sandbox, ruin: str) -> None:
    await python(sandbox, f"import os, shutil\nwork = os.getcwd()\nos.chdir('/')\n{ruin}")
    result = await python(sandbox, "import os\nopen('f', 'w').write('1')\nprint(os.listdir())")
    assert result.stdout == b"['f']\n", result
    assert await sandbox.read("f") == b"1"


async def test_a_run_beside_a_session_leaves_the_session_and_nothing_else(sandbox: Sandbox) -> None:
    await sandbox.run("x = 41")
    await sandbox.exec(Python(DAEMON))
    assert await processes(sandbox) == 1
    assert (await sandbox.run("x + 1")).stdout == b"42\n"
    await sandbox.run("import os; os._exit(0)")


async def test_closing_ends_whatever_runs() -> None:
    for name in ("bubblewrap", "process"):
        sandbox = await backend(name).create(TIGHT)
        await sandbox.run(DAEMON)
        assert sandbox.id in leases.marked()
        await sandbox.close()
        assert sandbox.id not in leases.marked()
        assert sandbox.id not in {lease.id for lease in leases.recorded()}


# --- arguments --------------------------------------------------------------------------------------------------


async def test_gigantic_arguments_are_the_programs_failure(sandbox: Sandbox) -> None:
    result = await sandbox.exec(Command(("echo", "x" * 3_000_000)))
    assert result.exit_code == 126
    assert b"too long" in result.stderr
    assert (await python(sandbox, "import sys; print(len(sys.argv[1]))", "x" * 3_000_000)).stdout == b"3000000\n"


async def test_what_no_sandbox_takes_is_refused_and_harms_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(RefusedError, match="takes"):
        await sandbox.exec(Python("pass"), stdin=bytes(wire.MOST_BYTES))
    await assert_serves(sandbox)


@pytest.mark.parametrize("args", [("no-such-command",), ("\0",), ("",), ("/etc",), ("sh", "-c", "\udcff\0")])
async def test_a_command_that_cannot_be_executed_is_the_programs_failure(
    sandbox: Sandbox, args: tuple[str, ...]
) -> None:
    result = await sandbox.exec(Command(args))
    assert result.exit_code in (126, 127)
    assert result.stderr


@pytest.mark.parametrize(
    "source", ["\0", "x = '\ud800'", "y = '\udcff'", "(" * 5000, "x = " + "-" * 100_000 + "1", "é = 'ü'; print(é)"]
)
async def test_any_text_is_a_program(sandbox: Sandbox, source: str) -> None:
    result = await python(sandbox, source)
    assert result.exit_code in (0, 1, -11)
    assert (await python(sandbox, "print('next')")).stdout == b"next\n"


async def test_a_large_input_that_nobody_reads_is_no_obstacle(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(Python("print('fine')"), stdin=bytes(10_000_000))).stdout == b"fine\n"

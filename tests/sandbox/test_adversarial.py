"""Programs that want out, or want everything: at least one test for each line of agentrl_sandbox's docstring."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from agentrl_sandbox import Backend, Command, Limit, Python, RefusedError, Sandbox, leases, local, shell
from agentrl_sandbox.inside import wire
from agentrl_sandbox.inside.proc import process

from tests.sandbox.asking import another, assert_serves, attempt, has_internet, printed, processes, python
from tests.sandbox.conftest import TIGHT, backend

SHORT = replace(TIGHT, wall_s=2.0)
FORBIDDEN = ("EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS")

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
    assert await printed(sandbox, attempt(f"os.open({path!r}, os.O_WRONLY | os.O_CREAT)")) in FORBIDDEN


async def test_the_interpreter_is_read_only(sandbox: Sandbox) -> None:
    assert await printed(sandbox, attempt("os.open(os.__file__, os.O_WRONLY)")) in ("EACCES", "EROFS")


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
        assert await printed(sandbox, attempt(f"open({path!r}).read()")) in FORBIDDEN, path


async def test_other_packages_cannot_be_seen(sandbox: Sandbox) -> None:
    show = "import os, site; print([os.listdir(path) for path in site.getsitepackages() if os.path.isdir(path)])"
    result = await sandbox.exec(shell(f"python3 -c '{show}'"))
    assert result.stdout in (b"[]\n", b"[[]]\n", b"[[], []]\n"), result
    search = f"find {sys.base_prefix} {sys.prefix} -path '*-packages/*' -name 'pi*' -not -path '*/dist-packages/*'"
    assert (await sandbox.exec(shell(search))).stdout == b""


async def test_the_environment_of_the_host_cannot_be_seen(walls: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cr3t")
    everything = "import os; print(dict(os.environ), open('/proc/self/environ').read())"
    async with another(walls) as fresh:
        for result in (await python(fresh, everything), await fresh.run(everything)):
            assert result.is_ok
            assert b"HOST_SECRET" not in result.stdout
        assert await processes(fresh) == 1  # the session


BELONGINGS = """
import os, socket, subprocess
name = "NAME"
for path in (name, "/dev/shm/" + name):
    with open(path, "w") as file: file.write(name)
local = socket.socket(socket.AF_UNIX)
local.bind("\\0" + name)
local.listen()
child = subprocess.Popen(["sh", "-c", "sleep 1000; :", name], env={"OF": name, "PATH": os.environ["PATH"]})
try:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
except OSError:  # nobody counts its buffers
    port = 0
print(os.getcwd(), port, child.pid)
"""
LOOK = """
import os, socket, sys
name, folder, port, *pids = sys.argv[1:]
def read(path):
    try:
        with open(path, errors="replace") as file: return file.read()
    except OSError: return ""
def is_done(call, *args):
    try: return call(*args) or True
    except OSError: return False
def connect(family, address):
    with socket.socket(family) as s: s.connect(address)
found = {
    "file": name in read(folder + "/" + name),
    "file by process": any(name in read(f"/proc/{pid}/cwd/{name}") for pid in pids),
    "shared memory": name in read("/dev/shm/" + name),
    "port": is_done(connect, socket.AF_INET, ("127.0.0.1", int(port))),
    "socket": is_done(connect, socket.AF_UNIX, "\\0" + name),
    "command line": any(name in read(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc")),
    "environment": any("OF=" + name in read(f"/proc/{pid}/environ") for pid in os.listdir("/proc")),
    "process": any(os.path.exists(f"/proc/{pid}") for pid in pids),
    "signal": any(is_done(os.kill, int(pid), 18) for pid in pids),
}
print(*(what for what, is_found in found.items() if is_found), sep=", ")
"""
ALL = "file, file by process, shared memory, port, socket, command line, environment, process, signal"


@pytest.mark.parametrize("whose", ["the host", "another sandbox"])
async def test_what_belongs_to_others_cannot_be_seen_reached_or_signalled(
    sandbox: Sandbox, walls: Backend, whose: str
) -> None:
    tops = ("/dev", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var")
    async with another(backend("process") if whose == "the host" else walls) as other:
        name = f"belonging-{os.getpid()}-{other.id}"
        begun = await other.run(BELONGINGS.replace("NAME", name))
        folder, port, child = begun.stdout.decode().split()
        outside = [str(pid) for pid in leases.marked()[other.id]]  # as the host counts
        assert await printed(other, LOOK, name, folder, port, child) == ALL.replace("" if int(port) else "port, ", "")
        assert int(port) or not has_internet(walls)
        assert await printed(sandbox, LOOK, name, folder, port, *outside) == ""
        walk = f"import os; print(any({name!r} in names for top in {tops} for _, _, names in os.walk(top)))"
        assert await printed(sandbox, walk) == "False"
        assert await printed(sandbox, attempt("os.kill(-1, 9)")) == "ESRCH"  # there is nobody but the warden
        assert await processes(sandbox) == 0
        assert (await other.run("os.remove('/dev/shm/' + name); child.poll() is None")).stdout == b"True\n"


CONNECT = """
import errno, socket, sys
tcp4, tcp6, name, count = sys.argv[1:]
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp4))),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(tcp6))),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + name),
    (socket.AF_INET, socket.SOCK_STREAM, ("10.0.0.1", 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("10.0.0.1", 53)),
)[:int(count)]:
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(2)
            s.connect(address)
        print("reached")
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
"""


async def test_there_is_no_network(sandbox: Sandbox, walls: Backend) -> None:
    name, ports = f"agentrl-test-{os.getpid()}", []
    with ExitStack() as stack:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with suppress(OSError):  # where there is no IPv6
                server = stack.enter_context(socket.create_server((host, 0), family=family))
                ports.append(str(server.getsockname()[1]))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"\0{name}")
        unix.listen()
        async with another(backend("process")) as unwalled:
            on_host = (await printed(unwalled, CONNECT, ports[0], ports[-1], name, "3")).split("\n")
        tcp4, tcp6, abstract, *beyond = (await printed(sandbox, CONNECT, ports[0], ports[-1], name, "5")).split("\n")
    assert on_host == ["reached", "reached" if len(ports) == 2 else on_host[1], "reached"]
    assert abstract == "ECONNREFUSED"
    assert tcp6 in ("ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT")
    if has_internet(walls):
        assert (tcp4, beyond) == ("ECONNREFUSED", ["ENETUNREACH", "ENETUNREACH"])
    else:
        assert (tcp4, beyond) == ("EAFNOSUPPORT", ["EAFNOSUPPORT", "EAFNOSUPPORT"])
    interfaces = (
        "import os; print(sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').read().splitlines()[2:]))"
    )
    assert await printed(sandbox, interfaces) == "['lo']"


async def test_a_socket_that_knows_no_network_namespace_cannot_be_made(sandbox: Sandbox) -> None:
    vsock = attempt("socket.socket(40, socket.SOCK_STREAM)")
    assert await printed(sandbox, vsock) in ("EAFNOSUPPORT", "EPERM")


async def test_outsiders_cannot_be_signalled(sandbox: Sandbox) -> None:
    for pid in {os.getpid(), os.getppid()} - {1}:  # every sandbox has a process 1 of its own
        assert await printed(sandbox, attempt(f"os.kill({pid}, 0)")) == "ESRCH"


# --- privileges -------------------------------------------------------------------------------------------------


async def test_a_program_has_no_privileges_and_gets_none(sandbox: Sandbox) -> None:
    status = await printed(sandbox, "print(open('/proc/self/status').read())")
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
        "open('/proc/kcore', 'rb').read(1) or os.stat('')",  # where an empty file hides it
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    ],
)
async def test_what_needs_privileges_fails(sandbox: Sandbox, statement: str) -> None:
    assert await printed(sandbox, attempt(statement)) in (*FORBIDDEN, "EAFNOSUPPORT", "EPROTONOSUPPORT")


SET_UID = """
import os, sys
for path in sys.argv[1:]:
    if os.path.exists(path) and os.stat(path).st_mode & 0o4000:
        quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
        pid = os.posix_spawn(path, [path, "--help"], {}, file_actions=quiet)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # what has ended still has its user ids
        print(path, *open(f"/proc/{pid}/status").read().split("Uid:")[1].split()[:4])
"""
FIND_SET_UID = """
import os, stat
modes = {path: os.lstat(path).st_mode for top in os.scandir("/") if top.name not in ("proc", "sys")
         for folder, _, names in os.walk(top.path) for path in (os.path.join(folder, name) for name in names)}
print([path for path, mode in modes.items() if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID)])
"""


def set_uid_programs() -> list[str]:
    """Those of this machine that an ordinary user would run as root."""
    paths = [Path(path) for name in ("su", "mount", "passwd") if (path := shutil.which(name))]
    return [str(path) for path in paths if path.stat().st_mode & stat.S_ISUID]


async def test_a_set_uid_program_has_the_rights_of_who_runs_it(sandbox: Sandbox, walls: Backend) -> None:
    programs = set_uid_programs()
    ran = (await printed(sandbox, SET_UID, *programs)).splitlines()
    if walls.name == "docker":  # its image has none
        assert ran == []
        await sandbox.exec(shell("cp /bin/sh own; chmod u+s own"))
        assert await printed(sandbox, FIND_SET_UID) == "['/tmp/work/own']"
    else:
        user = await printed(sandbox, "import os; print(os.getuid())")
        assert ran == [" ".join((path, *[user] * 4)) for path in programs]


# System calls by their numbers on x86_64, with arguments with which they succeed where nothing forbids them.
CALLS = {
    "unshare (user)": "272, 0x10000000",
    "unshare (mount)": "272, 0x00020000",
    "clone (user)": "56, 0x10000000 | 17, 0, 0, 0, 0",
    "setns": "308, os.open('/proc/self/ns/uts', os.O_RDONLY), 0",
    "mount": "165, b'none', b'/tmp', b'tmpfs', 0, 0",
    "ptrace (attach to the warden)": "101, 16, 1, 0, 0",
    "process_vm_readv (of the warden)": "310, 1, piece(room), 1, piece(None), 1, 0",
    "pidfd_getfd (of itself)": "438, os.pidfd_open(os.getpid()), 0, 0",
    "kexec_load": "246, 0, 0, 0, 0",
    "bpf (make a map)": "321, 0, struct.pack('5I', 2, 4, 4, 1, 0), 20",
    "perf_event_open": "298, struct.pack('IIQQQQQ16x', 1, 64, 1, 0, 0, 0, 0x60), 0, -1, -1, 0",
    "keyctl (make a keyring)": "250, 0, -2, 1",
    "open_by_handle_at": "304, os.open('/tmp', os.O_RDONLY), handle, 0",
}
CALL = """
import ctypes, errno, os, struct
call = ctypes.CDLL(None, use_errno=True).syscall
room, handle = ctypes.create_string_buffer(8), ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
def piece(place): return struct.pack("QQ", id(place) if place is None else ctypes.addressof(place), 8)
call(303, -100, b"/tmp", handle, ctypes.byref(ctypes.c_int()), 0)
print("done" if call(CALL) != -1 else errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("name", CALLS)
async def test_system_calls_that_open_walls_are_refused(sandbox: Sandbox, name: str) -> None:
    assert await printed(sandbox, CALL.replace("CALL", CALLS[name])) in ("EPERM", "ENOSYS")


# --- the warden -------------------------------------------------------------------------------------------------


async def test_the_warden_cannot_be_signalled(sandbox: Sandbox) -> None:
    source = (
        "import os\nfor number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass\nprint('tried')"
    )
    assert await printed(sandbox, source) == "tried"
    assert await printed(sandbox, attempt("os.kill(-1, 9)")) == "ESRCH"  # there is nobody but the warden
    await assert_serves(sandbox)


@pytest.mark.parametrize("path", ["/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/maps", "/proc/1/fd"])
async def test_the_warden_cannot_be_looked_into(sandbox: Sandbox, path: str) -> None:
    opened = f"os.listdir({path!r})" if path.endswith("fd") else f"open({path!r}, 'rb').read(1)"
    assert await printed(sandbox, attempt(opened)) in ("EACCES", "EPERM")


async def test_a_program_has_its_own_three_files_and_no_more(sandbox: Sandbox) -> None:
    source = "import os\nfor fd in range(1024):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
    assert await printed(sandbox, source) == "0\n1\n2"


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


SCAN = """
import os, sys
NEXT = bytes([*range(1, 256), 0])
def is_in_memory(disguised):
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    for line in open("/proc/self/maps"):
        first, last = (int(address, 16) for address in line.split()[0].split("-"))
        for at in range(first, last, 1 << 20):
            try: piece = os.pread(memory, min((1 << 20) + len(disguised), last - at), at)
            except (OSError, OverflowError): break  # not readable
            if disguised in piece.translate(NEXT): return True
    return False
nonce, decoy = map(bytes.fromhex, sys.argv[1:])
print(is_in_memory(nonce), is_in_memory(decoy))
planted = bytes(byte - 1 & 255 for byte in decoy)
print(is_in_memory(nonce), is_in_memory(decoy))
"""


async def test_a_nonce_is_not_in_the_memory_of_the_program_that_it_vouches_for(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonce, decoy = os.urandom(wire.NONCE_BYTES), os.urandom(wire.NONCE_BYTES)
    nonces = iter([nonce])
    monkeypatch.setattr(local, "os", SimpleNamespace(urandom=lambda count: next(nonces)))
    # Each byte one higher: the program must not learn from its argument what it looks for.
    disguised = [bytes(byte + 1 & 255 for byte in secret).hex() for secret in (nonce, decoy)]
    assert await printed(sandbox, SCAN, *disguised) == "False False\nFalse True"
    assert next(nonces, None) is None  # it was that run's


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


async def test_a_hard_link_to_a_file_elsewhere_is_not_written(sandbox: Sandbox) -> None:
    await sandbox.exec(shell("echo outside > /tmp/elsewhere; ln -f /tmp/elsewhere hard"))
    with pytest.raises(RefusedError):
        await sandbox.write("hard", b"changed")
    assert (await sandbox.exec(shell("cat /tmp/elsewhere; rm hard"))).stdout == b"outside\n"


RACE = """
import ctypes, os, threading
os.makedirs("d", exist_ok=True); os.makedirs("/tmp/evil", exist_ok=True)
for path, content in (("d/f", "inside"), ("f", "inside"), ("/tmp/evil/f", "outside")):
    with open(path, "w") as file: file.write(content)
os.symlink("/tmp/evil" if SWAPPED == "d" else "/tmp/evil/f", "evil")
swap, swaps, is_over = ctypes.CDLL(None, use_errno=True).renameat2, 0, False
def race():
    global swaps
    while not is_over and swap(-100, SWAPPED.encode(), -100, b"evil", 2) == 0:  # RENAME_EXCHANGE: no moment without it
        swaps += 1
racer = threading.Thread(target=race)
racer.start()
"""
RACE_S = 10.0


@pytest.mark.parametrize("path", ["d/f", "f"])
async def test_a_race_of_links_leads_neither_read_nor_write_outside(sandbox: Sandbox, path: str) -> None:
    assert (await sandbox.run(RACE.replace("SWAPPED", repr(path[0])))).is_ok
    outcomes, until, rounds = {"read": set[str](), "write": set[str]()}, time.monotonic() + RACE_S, 0
    while time.monotonic() < until and (rounds < 30 or min(map(len, outcomes.values())) < 2):
        rounds += 1
        try:
            assert await sandbox.read(path) in (b"inside", b"written")
            outcomes["read"].add("done")
        except RefusedError:
            outcomes["read"].add("refused")
        try:
            await sandbox.write(path, b"written")
            outcomes["write"].add("done")
        except RefusedError:
            outcomes["write"].add("refused")
    assert all(outcome == {"done", "refused"} for outcome in outcomes.values()), outcomes
    ended = await sandbox.run("print(racer.is_alive(), swaps > 100)\nis_over = True\nracer.join()")
    assert ended.stdout == b"True True\n"
    await sandbox.run("import os; os._exit(0)")
    assert (await sandbox.exec(shell("cat /tmp/evil/f"))).stdout == b"outside"
    await sandbox.exec(shell("rm -rf d f evil"))


async def test_an_archive_that_leads_outside_is_refused(sandbox: Sandbox) -> None:
    import io
    import tarfile

    from agentrl_sandbox import Snapshot

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../tmp/escaped"))
    with pytest.raises(RefusedError):
        await sandbox.restore(Snapshot(content.getvalue()))
    assert await printed(sandbox, "import os; print(os.path.exists('/tmp/escaped'))") == "False"


# --- leftovers --------------------------------------------------------------------------------------------------

DAEMON = """
import os, time
ours, its = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    for fd in (0, 1, 2): os.close(fd)
    os.write(its, b"started\\n")
    while True: time.sleep(0.01)
os.write(1, os.read(ours, 8))
"""


@pytest.mark.parametrize(
    "ending", ["", "while True: time.sleep(1)", "os.kill(os.getpid(), 9)", "while True: print('x' * 9999)"]
)
async def test_nothing_outlives_its_run(sandbox: Sandbox, ending: str) -> None:
    result = await sandbox.exec(Python(DAEMON + ending), limits=SHORT)
    assert result.stdout.startswith(b"started\n")
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
    assert await printed(sandbox, DAEMON) == "started"
    assert await processes(sandbox) == 1
    assert (await sandbox.run("x + 1")).stdout == b"42\n"
    await sandbox.run("import os; os._exit(0)")


async def test_closing_ends_whatever_runs(any_sandbox: Sandbox) -> None:
    before = leases.marked()[any_sandbox.id]
    assert (await any_sandbox.run(DAEMON)).stdout.startswith(b"started\n")
    pids = leases.marked()[any_sandbox.id]
    assert len(pids) >= len(before) + 2  # the session and its daemon
    await any_sandbox.close()
    assert all((left := process(pid)) is None or left.state in (b"Z", b"X") for pid in pids)
    assert any_sandbox.id not in leases.marked()
    assert any_sandbox.id not in {lease.id for lease in leases.recorded()}


# --- arguments --------------------------------------------------------------------------------------------------


async def test_gigantic_arguments_are_the_programs_failure(sandbox: Sandbox) -> None:
    result = await sandbox.exec(Command(("echo", "x" * 3_000_000)))
    assert result.exit_code == 126
    assert b"too long" in result.stderr
    assert (await python(sandbox, "import sys; print(len(sys.argv[1]))", "x" * 3_000_000)).stdout == b"3000000\n"


async def test_what_no_sandbox_takes_is_refused_and_harms_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(RefusedError, match="accepts"):
        await sandbox.exec(Python("pass"), stdin=bytes(wire.MAX_BYTES))
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

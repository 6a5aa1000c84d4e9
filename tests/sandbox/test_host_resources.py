"""Resources of the whole machine, taken from inside: each attempt succeeds without a wall, and fails behind one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agentrl_sandbox import Backend, Python, Sandbox, seccomp, shell, syscalls

from tests.sandbox.asking import another, attempt, has_internet, printed
from tests.sandbox.conftest import LOCAL, TIGHT, backend

ONLY_X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")

# System calls of x86_64 that nobody needs a privilege for, and what undoes them.
CALLS = {
    "contexts for asynchronous input": ("206, 100, address", "207, place.value"),
    "watches of files": ("294, 0", ""),
    "huge pages": ("9, 0, 2 << 20, 3, 0x20 | 0x2 | 0x4000 | 0x40000, -1, 0", ""),
    "a file of huge pages": ("319, b'huge', 4", ""),
    "locked memory": ("149, address, 8", "150, address, 8"),
    "page faults handled by a program": ("323, 1", ""),
    "a queue of messages": ("240, b'agentrl-test', 0o102, 0o600, 0", "241, b'agentrl-test'"),
    "shared memory of System V": ("29, 0, 4096, 0o1600", "31, result, 0, 0"),
    "messages of System V": ("68, 0, 0o600", "71, result, 0, 0"),
    "semaphores of System V": ("64, 0, 1, 0o600", "66, result, 0, 0"),
    "a larger pipe": ("72, os.pipe()[0], 1031, 1 << 19", ""),
    "a lease on a file": ("72, os.open('leased', os.O_RDWR | os.O_CREAT, 0o600), 1024, 1", ""),
    "a watch of a folder": ("72, os.open('.', os.O_RDONLY), 1026, 1", ""),
    "signals for another process": ("72, os.pipe()[0], 8, os.getppid()", ""),
    "a lock on a file of the host": ("73, os.open(os.__file__, os.O_RDONLY), 1 | 4", ""),
    "pages of a file, read ahead": ("187, os.open(os.__file__, os.O_RDONLY), 0, 4096", ""),
    "the priority of reading and writing": ("251, 1, 0, 2 << 13 | 4", ""),
    "a shared pair of cores": ("157, 62, 0, 0, 0, 0", ""),
    "keys": ("248, b'user', b'agentrl-test', b'x', 1, -2", ""),
    "memory that nobody else sees": ("447, 0", ""),
    "rules for itself": ("444, 0, 0, 1", ""),
    "a handle of a file": ("303, -100, b'/tmp', struct.pack('Ii', 128, 0) + bytes(128), address, 0", ""),
    "memory of pages in a pipe": ("278, os.pipe()[1], struct.pack('QQ', place_at, 8), 1, 0", ""),
}
CALL = """
import ctypes, errno, os, struct
raw = ctypes.CDLL(None, use_errno=True).syscall
raw.restype = ctypes.c_long
def call(*words): return raw(*(ctypes.c_long(word) if isinstance(word, int) else word for word in words))
place = ctypes.c_ulong(0)
address, place_at = ctypes.byref(place), ctypes.addressof(place)
result = call(CALL)
print(errno.errorcode[ctypes.get_errno()] if result == -1 else "done")
if result != -1 and (UNDONE): call(*(UNDONE))
"""
NOT_EVERYWHERE = ("ENOSYS", "EOPNOTSUPP", "ENOMEM", "EINVAL")  # where the kernel was built, or started, without it


def program(name: str) -> str:
    call, undone = CALLS[name]
    return CALL.replace("CALL", call).replace("UNDONE", f"{undone}," if undone else "()")


@pytest.mark.parametrize("name", LOCAL)
def test_a_sandbox_starts_where_no_core_may_be_written(name: str) -> None:
    backend(name)  # or skipped, with the reason
    code = f"""
import asyncio, warnings
from agentrl_sandbox import Limits, Python, choose

async def main():
    sandbox = await choose({name!r}).create(Limits())
    print((await sandbox.exec(Python("print(1)"))).stdout)
    await sandbox.close()

warnings.simplefilter("ignore")
asyncio.run(main())
"""
    words = ["sh", "-c", 'ulimit -c 0 && exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "b'1\\n'\n", done.stderr


@ONLY_X86_64
@pytest.mark.parametrize("name", CALLS)
async def test_what_is_shared_by_the_machine_cannot_be_taken(sandbox: Sandbox, name: str) -> None:
    async with another(backend("process")) as unwalled:
        control = await printed(unwalled, program(name))
    if control in NOT_EVERYWHERE:
        pytest.skip(f"without a wall too: {control}")
    assert control == "done"
    assert await printed(sandbox, program(name)) in ("EPERM", "ENOSYS", "EINVAL", "ENOMEM")


async def test_terminals_cannot_be_taken(sandbox: Sandbox) -> None:
    opened = attempt("os.open('/dev/ptmx', os.O_RDWR)")
    async with another(backend("process")) as unwalled:
        assert await printed(unwalled, opened) == "done"
    assert await printed(sandbox, opened) == "ENOENT"
    assert await printed(sandbox, attempt("os.openpty()")) == "ENOENT"


WRITABLE = """
import os
found = [path for path in ("/", "/dev/mqueue/x") if os.access(os.path.dirname(path), os.W_OK)]
for top, folders, names in os.walk("/"):
    if top in ("/proc", "/sys/fs", "/usr"): folders.clear(), names.clear()
    paths = [top, *(os.path.join(top, name) for name in names)]
    found += [path for path in paths if not os.path.islink(path) and os.access(path, os.W_OK)]
print(*sorted(path for path in found if not path.startswith("/tmp")))
"""
DEVICES = {"/dev/full", "/dev/null", "/dev/random", "/dev/shm", "/dev/tty", "/dev/urandom", "/dev/zero"}


async def test_programs_write_nowhere_but_in_their_memory(sandbox: Sandbox) -> None:
    assert set((await printed(sandbox, WRITABLE)).split()) <= DEVICES


@ONLY_X86_64
@pytest.mark.parametrize("number", [74, 75, 306], ids=["fsync", "fdatasync", "syncfs"])
async def test_no_disk_of_the_host_is_made_to_write(sandbox: Sandbox, number: int) -> None:
    flush = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, -1))"
    async with another(backend("process")) as unwalled:
        assert await printed(unwalled, flush) == "-1"  # it looks at the file, which is none
    assert await printed(sandbox, flush) == "0"


OPEN = """
import errno, socket
for made, *wanted in (
    (socket.socket, socket.AF_UNIX, socket.SOCK_STREAM, 0),
    (socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM, 0),
    (socket.socketpair, socket.AF_INET, socket.SOCK_STREAM, 0),
    (socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0),
    (socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262),
    (socket.socket, socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0),
    (socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 17),
):
    try:
        made(*wanted)
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


async def test_sockets_are_of_families_that_somebody_counts(sandbox: Sandbox, walls: Backend) -> None:
    async with another(backend("process")) as unwalled:
        unix, pair, pair_of_internet, netlink, mptcp, *rest = (await printed(unwalled, OPEN)).split()
    assert (unix, pair, pair_of_internet, netlink) == ("done", "done", "ENOTSUP", "done")
    assert {mptcp, *rest} <= {"done", "EPROTONOSUPPORT", "EAFNOSUPPORT"}
    unix, pair, pair_of_internet, netlink, mptcp, *rest = (await printed(sandbox, OPEN)).split()
    assert (unix, pair, pair_of_internet, netlink) == ("done", "done", "EAFNOSUPPORT", "EAFNOSUPPORT")
    assert [mptcp, *rest] == (["EPROTONOSUPPORT", "done", "done"] if has_internet(walls) else ["EAFNOSUPPORT"] * 3)


FLOOD = """
import socket
def used(): return sum(int(line.split()[-1]) for line in open("/proc/net/sockstat") if line[:3] in ("TCP", "UDP"))
before, kept, tcp = used(), [], socket.create_server(("127.0.0.1", 0))
for _ in range(15):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    sender = socket.create_connection(tcp.getsockname())
    kept += [udp, sender, tcp.accept()[0]]
    for each in kept: each.setblocking(False)
    try:
        for _ in range(400): udp.sendto(bytes(1024), udp.getsockname())
    except OSError: pass
    try:
        while True: sender.send(bytes(1 << 16))
    except OSError: pass
print((used() - before) * 4096)
"""


async def test_buffers_of_sockets_are_limited_with_memory(sandbox: Sandbox, walls: Backend) -> None:
    if not has_internet(walls):
        assert await printed(sandbox, attempt("socket.socket(socket.AF_INET)")) == "EAFNOSUPPORT"
        return
    held = int(await printed(sandbox, FLOOD))
    assert 0 < held < TIGHT.memory_bytes // 4


@pytest.mark.parametrize(
    ("own", "wardens"),
    [
        ("resource.prlimit(0, 7, resource.prlimit(0, 7))", "resource.prlimit(1, 7, (8, 8))"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 1)", "os.setpriority(os.PRIO_PROCESS, 1, 19)"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 1)", "os.setpriority(os.PRIO_USER, 0, 19)"),
        ("os.sched_setaffinity(0, os.sched_getaffinity(0))", "os.sched_setaffinity(1, os.sched_getaffinity(0))"),
        ("os.sched_setscheduler(0, 3, os.sched_param(0))", "os.sched_setscheduler(1, 5, os.sched_param(0))"),
        ("os.kill(0, 0)", "os.kill(1, 17)"),
        ("os.pidfd_open(os.getpid())", "os.pidfd_open(1)"),
    ],
)
async def test_the_warden_keeps_its_limits_and_its_priority(sandbox: Sandbox, own: str, wardens: str) -> None:
    assert await printed(sandbox, "import resource\n" + attempt(own)) == "done"
    assert await printed(sandbox, "import resource\n" + attempt(wardens)) == "EPERM"
    state = "import os; print(os.getpriority(os.PRIO_PROCESS, 1), os.sched_getscheduler(1))"
    assert await printed(sandbox, state) == "0 0"


async def test_programs_of_docker_have_a_user_of_their_own() -> None:
    users = set()
    for _ in range(2):
        async with another(backend("docker")) as sandbox:
            users.add(await printed(sandbox, "import os; print(os.getresuid(), os.getresgid())"))
    assert len(users) == 2
    assert not any(re.search(r"\b(0|65534), ", user) for user in users), users


CORES = """
import resource
for limits in ((0, 0), (1, 1)):
    try: resource.setrlimit(resource.RLIMIT_CORE, limits)
    except (OSError, ValueError): pass
    try: resource.prlimit(0, resource.RLIMIT_CORE, limits)
    except (OSError, ValueError): pass
    print(*resource.getrlimit(resource.RLIMIT_CORE))
"""


async def test_a_crash_does_not_start_the_hosts_program_for_cores(sandbox: Sandbox) -> None:
    """A limit of 1 is the only one with which the kernel does not (`man 5 core`)."""
    async with another(backend("process")) as unwalled:
        assert (await printed(unwalled, CORES)).startswith("0 0\n")
    assert await printed(sandbox, CORES) == "1 1\n1 1"
    assert (await sandbox.exec(Python("import os; os.abort()"))).exit_code == -6


ORDINARY = {
    "threads": "import threading\nt = threading.Thread(target=print, args=('ok',)); t.start(); t.join()",
    "processes": """
import multiprocessing
def double(x): return 2 * x
with multiprocessing.get_context("fork").Pool(2) as pool: print(*pool.map(double, [1, 2]))
with multiprocessing.Manager() as manager: print(manager.list([1]))
""",
    "subprocess": "import subprocess; print(subprocess.run(['sh', '-c', 'echo a | cat'], capture_output=True).stdout)",
    "asyncio": """
import asyncio, subprocess
async def main():
    child = await asyncio.create_subprocess_exec("echo", "a", stdout=subprocess.PIPE)
    print((await child.communicate())[0])
    async with await asyncio.start_unix_server(lambda r, w: w.close(), "socket"):
        reader, writer = await asyncio.open_unix_connection("socket")
        print(await reader.read())
        writer.close()
asyncio.run(main())
""",
    "databases": """
import dbm.dumb, shelve, sqlite3
for mode in ("delete", "wal"):
    base = sqlite3.connect("base"); base.execute(f"pragma journal_mode={mode}")
    base.execute("create table if not exists t (x)"); base.execute("insert into t values (1)"); base.commit()
    print(base.execute("select count(*) from t").fetchone()); base.close()
with shelve.open("shelf") as shelf: shelf["a"] = 1
""",
    "files": """
import fcntl, mmap, os, shutil, tempfile
with tempfile.NamedTemporaryFile() as file:
    file.write(b"abc"); file.flush(); os.fsync(file.fileno()); fcntl.lockf(file, fcntl.LOCK_EX)
    with mmap.mmap(file.fileno(), 3) as mapped: mapped[:1] = b"x"; mapped.flush()
    shutil.copy2(file.name, "copy"); shutil.copytree(os.path.dirname(os.__file__) + "/json", "tree")
os.mkfifo("fifo"); os.symlink("copy", "link"); os.sync(); print(open("link").read())
""",
    "shared memory": "from multiprocessing.shared_memory import *; SharedMemory(create=True, size=9).unlink()",
    "signals": """
import signal
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.sigwait([]) if 0 else signal.pause()
""",
    "limits": "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)); print(os.nice(1))",
    "memory": "x = [bytearray(1 << 20) for _ in range(20)]; import ctypes, decimal, gc; gc.collect(); print(len(x))",
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_programs_work(sandbox: Sandbox, name: str) -> None:
    clean = await sandbox.exec(shell("rm -rf /tmp/work/*"))
    assert clean.is_ok
    result = await sandbox.exec(Python(ORDINARY[name]))
    assert result.is_ok, result.stderr.decode()


async def test_ordinary_commands_work(sandbox: Sandbox) -> None:
    script = (
        "set -e; echo b > f; cp f g; mv g h; sort f h | uniq -c; ls -la /dev >d; find . -name h | xargs cat; date; id; "
        "mktemp; timeout 2 sleep 0; sed s/b/c/ f; tail -n 1 f; bash -c 'cat <(echo sub); ulimit -c 0'; rm f h"
    )
    result = await sandbox.exec(shell(script))
    assert result.is_ok, result.stderr.decode()


HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_syscall_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = Path("/usr/include", HEADERS[machine])
    if not header.exists():
        pytest.skip("no headers of the kernel here")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    known = {name: int(number) for name, number in reversed(defined)}
    if machine == "aarch64":  # the names of a 64-bit machine, which the header gives by a table of its own
        known |= {"newfstatat": known["fstatat"]}
    listed = syscalls.numbers(1 + (machine == "aarch64"))
    assert [name for name in listed if known.get(name, listed[name]) != listed[name]] == []
    assert len(set(listed) - set(known)) < 12  # calls newer than the headers
    assert set(seccomp.RULES) | set(seccomp.ANSWERED) <= set(listed)


LOCK = "file = open(os.__file__); import fcntl; fcntl.lockf(file, fcntl.{})"


async def test_a_lock_on_a_file_of_the_host_keeps_no_other_sandbox_waiting(sandbox: Sandbox, walls: Backend) -> None:
    """To wait takes a write lock, which needs a file that may be written: sqlite3 locks its own, and needs the call."""
    held = await sandbox.run(f"import os; {LOCK.format('LOCK_SH')}; 'held'")
    assert held.stdout == b"'held'\n"
    async with another(walls) as other:
        assert await printed(other, attempt(LOCK.format("LOCK_SH"))) == "done"
        assert await printed(other, attempt(LOCK.format("LOCK_EX"))) == "EBADF"
        assert await printed(other, attempt("open(os.__file__, 'r+')")) in ("EROFS", "EACCES")

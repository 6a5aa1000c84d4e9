"""Without root and without control groups the walls stand too; limits are rlimits then, and that is printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import agentrl_sandbox
import pytest

from tests.sandbox.conftest import backend

NOBODY = 65534
SCRIPT = """
import asyncio
from agentrl_sandbox import Command, Limit, Limits, Python, UnavailableError, choose, gc, shell

async def main():
    limits = Limits(wall_s=2, memory_bytes=200 << 20, processes=20, disk_bytes=8 << 20)
    sandbox = await choose("bubblewrap").create(limits)
    assert "user namespace" in choose("bubblewrap").describe()
    status = (await sandbox.exec(Command(("cat", "/proc/self/status")))).stdout.decode()
    fields = dict(line.split(":\\t", 1) for line in status.splitlines() if ":\\t" in line)
    assert int(fields["CapEff"], 16) == 0 and fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", status
    for path in ("/proc/1/mem", "/proc/1/fd/0", "/proc/1/environ"):
        assert not (await sandbox.exec(Python(f"open({path!r}, 'rb').read(1)"))).is_ok, path
    kill = "import os\\nfor n in range(1, 65):\\n    try: os.kill(1, n)\\n    except OSError: pass"
    assert (await sandbox.exec(Python(kill))).is_ok
    bomb = await sandbox.exec(Python("import os\\nwhile True:\\n    try: os.fork()\\n    except OSError: pass"))
    assert Limit.TIME in bomb.hits
    assert (await sandbox.exec(Python("x = bytearray(1 << 30)"))).exit_code == 1
    filled = await sandbox.exec(shell("head -c 20000000 /dev/zero > a; head -c 20000000 /dev/zero > b"))
    assert Limit.DISK in filled.hits
    await sandbox.run("x = 41")
    assert (await sandbox.run("x + 1")).stdout == b"42\\n"
    for statement in ("open('/x', 'w')", "open('/usr/x', 'w')", "open('/dev/x', 'w')", "__import__('os').setuid(0)"):
        assert not (await sandbox.exec(Python(statement))).is_ok, statement
    for statement in (
        "resource.prlimit(1, 7, (8, 8))", "os.setpriority(os.PRIO_USER, 0, 19)", "os.sched_setaffinity(1, {0})",
        "os.kill(1, 17)", "os.openpty()", "socket.socket(socket.AF_INET)", "fcntl.flock(0, 2)",
    ):
        tried = await sandbox.exec(Python(f"import fcntl, os, resource, socket\\n{statement}"))
        assert b"Error" in tried.stderr, statement
    cores = await sandbox.exec(Python("import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"))
    assert cores.stdout == b"1 1\\n"
    await sandbox.close()
    assert gc.collect() == []

asyncio.run(main())
"""


def system_python() -> str:
    """An interpreter that everybody may run."""
    for path in (sys.base_prefix + "/bin/python3", "/usr/bin/python3"):
        program = [path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(program, user=NOBODY, timeout=20, check=False, capture_output=True).returncode == 0:
                return path
        except OSError:
            continue
    pytest.skip("no Python 3.11 that another user may run")


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder with the package that everybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(agentrl_sandbox.__file__).parent, Path(folder, "agentrl_sandbox"))
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o644)
        yield Path(folder)


ROOT_OF_A_NAMESPACE = ("unshare", "--map-root-user", "--net")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("start", [(), ROOT_OF_A_NAMESPACE], ids=["nobody", "root-of-a-namespace"])
def test_a_user_without_privileges_has_walls_and_rlimits(readable: Path, start: tuple[str, ...]) -> None:
    """`agentrl env check` cuts the network by such a namespace, whose root has a single user id."""
    backend("bubblewrap")
    python = system_python()
    environment = {"PYTHONPATH": str(readable), "PATH": os.environ["PATH"], "AGENTRL_SANDBOX_DIR": str(readable)}
    program = [*start, python, "-W", "error::ResourceWarning", "-c", SCRIPT]
    answer = subprocess.run(
        program, user=NOBODY, group=NOBODY, extra_groups=[], env=environment, cwd="/", capture_output=True, text=True,
        timeout=50, check=False,
    )  # fmt: skip
    if "may not make" in answer.stderr or "user namespaces" in answer.stderr:
        pytest.skip(answer.stderr.splitlines()[-1])
    assert answer.returncode == 0, answer.stderr

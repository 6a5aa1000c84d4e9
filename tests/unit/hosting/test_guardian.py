"""The guardian of a process reaps its orphans, and ends as the process does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from agentrl.hosting import guardian

GUARDED = (
    "import os, signal, sys\nfrom agentrl.hosting.guardian import guard\nguard(int(sys.argv[1]))\nsignal.alarm(60)\n"
)
ORPHAN = """
reading, writing = os.pipe()
if not os.fork():
    if not os.fork():
        os.write(writing, str(os.getpid()).encode())
    os._exit(0)
orphan = int(os.read(reading, 99))
os.wait()
while os.path.exists(f"/proc/{orphan}"):
    os.sched_yield()
"""


def ended(code: str) -> int:
    """How a process with this code ends, as its parent sees it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", GUARDED + code, str(theirs.fileno())]
        return subprocess.run(command, pass_fds=[theirs.fileno()], timeout=60, check=False).returncode


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_code_is_that_of_the_process(code: int) -> None:
    assert ended(f"sys.exit({code})") == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_signal_is_that_of_the_process(number: signal.Signals) -> None:
    assert ended(f"os.kill(os.getpid(), {number.value})") == -number


def test_an_orphan_is_reaped_while_the_process_runs() -> None:
    assert ended(ORPHAN) == 0


def test_a_command_ends_with_what_it_started_when_the_other_side_is_closed() -> None:
    connected, ours = os.pipe()
    words = [str(connected), "sh", "-c", "setsid sleep 600 & echo started; wait"]
    command = [sys.executable, "-I", guardian.__file__, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[connected]) as running:
        os.close(connected)
        assert running.stdout
        assert running.stdout.readline() == b"started\n"
        os.close(ours)
        assert running.stdout.read() == b""  # nobody holds it any more
        assert running.wait(60) == 1


@pytest.mark.parametrize(
    ("code", "ends", "says"),
    [("exit 3", 3, ""), ("kill -9 $$", 137, ""), (None, 1, "/none cannot be executed: No such file or directory\n")],
)
def test_a_command_ends_with_its_own_code(code: str | None, ends: int, says: str) -> None:
    connected, ours = os.pipe()
    words = ["sh", "-c", code] if code else ["/none"]
    command = [sys.executable, "-I", guardian.__file__, str(connected), *words]
    ran = subprocess.run(command, pass_fds=[connected], capture_output=True, text=True, timeout=60, check=False)
    os.close(connected)
    os.close(ours)
    assert (ran.returncode, ran.stderr) == (ends, says)

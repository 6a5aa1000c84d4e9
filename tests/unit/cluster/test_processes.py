"""What a run started can be ended by the next one, and nothing else is ever touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agentrl.cluster.processes import FILE, ProcessRecord, ProcessRegistry
from agentrl.errors import RunError

WAITS = "print(flush=True); input()"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
HAS_A_CHILD = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {WAITS!r}]); c.wait()"
REGISTERS_ITSELF = (
    "import os, sys; from pathlib import Path; from agentrl.cluster.processes import ProcessRegistry;"
    "p = ProcessRegistry(Path(sys.argv[1])); p.register('self', os.getpid()); print(p.leftovers(), flush=True)"
)

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python processes that have come to their waiting when this returns; ends them after the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert children[-1].stdout is not None
        children[-1].stdout.readline()
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate(timeout=10)


def test_a_registered_process_is_on_disk_with_its_start_time(tmp_path: Path, start: Start) -> None:
    child = start(WAITS)
    ProcessRegistry(tmp_path).register("engine 0", child.pid)
    process = ProcessRegistry(tmp_path).registered()[-1]
    assert ProcessRegistry(tmp_path).registered() == [process]
    assert json.loads((tmp_path / FILE).read_text())["role"] == "engine 0"


def test_a_living_process_is_a_leftover_until_it_ends(tmp_path: Path, start: Start) -> None:
    child = start(WAITS)
    ProcessRegistry(tmp_path).register("worker", child.pid)
    process = ProcessRegistry(tmp_path).registered()[-1]
    assert ProcessRegistry(tmp_path).leftovers() == [process]
    child.communicate(b"\n", timeout=10)
    assert ProcessRegistry(tmp_path).leftovers() == []


def test_a_zombie_has_ended(tmp_path: Path, start: Start) -> None:
    child = start(WAITS)
    ProcessRegistry(tmp_path).register("worker", child.pid)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessRegistry(tmp_path).leftovers() == []
    before = ProcessRegistry(tmp_path).registered()
    ProcessRegistry(tmp_path).register("worker", child.pid)
    assert ProcessRegistry(tmp_path).registered() == before


def test_this_process_and_those_it_descends_from_are_never_leftovers(tmp_path: Path, start: Start) -> None:
    start(WAITS)  # nor are children of theirs that nobody registered
    ProcessRegistry(tmp_path).register("driver", os.getpid())
    ProcessRegistry(tmp_path).register("shell", os.getppid())
    assert ProcessRegistry(tmp_path).leftovers() == []
    output = subprocess.run(
        [sys.executable, "-c", REGISTERS_ITSELF, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"


def test_leftovers_end_with_their_descendants(tmp_path: Path, start: Start) -> None:
    ProcessRegistry(tmp_path).register("engine", start(HAS_A_CHILD).pid)
    ProcessRegistry(tmp_path).register("worker", start(WAITS).pid)
    ended = ProcessRegistry(tmp_path).leftovers()
    ProcessRegistry(tmp_path).end_leftovers(10.0)
    assert sorted(process.role for process in ended) == ["child of engine", "engine", "worker"]
    assert ProcessRegistry(tmp_path).leftovers() == []
    assert not any(is_running(process) for process in ended)


def test_what_ignores_sigterm_is_killed_and_its_orphans_too(tmp_path: Path, start: Start) -> None:
    stubborn = start(IGNORES_SIGTERM)
    parent = start(HAS_A_CHILD.replace(repr(WAITS), repr(IGNORES_SIGTERM)))
    ProcessRegistry(tmp_path).register("stubborn", stubborn.pid)
    ProcessRegistry(tmp_path).register("parent", parent.pid)
    ended = ProcessRegistry(tmp_path).leftovers()
    ProcessRegistry(tmp_path).end_leftovers(1.0)
    assert sorted(process.role for process in ended) == ["child of parent", "parent", "stubborn"]
    assert stubborn.wait(10) == -signal.SIGKILL
    assert parent.wait(10) == -signal.SIGTERM
    assert not any(is_running(process) for process in ended)


def test_what_outlives_the_deadline_is_named(tmp_path: Path, start: Start) -> None:
    child = start(WAITS)
    ProcessRegistry(tmp_path).register("stubborn", child.pid)
    with pytest.raises(RunError, match=rf"stubborn \(pid {child.pid}\)"):
        ProcessRegistry(tmp_path).end_leftovers(0.0)


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}, {"host": "another"}])
def test_a_process_that_has_the_pid_of_a_dead_one_is_not_touched(
    tmp_path: Path, start: Start, change: dict[str, object]
) -> None:
    child = start(WAITS)
    ProcessRegistry(tmp_path).register("engine", child.pid)
    process = ProcessRegistry(tmp_path).registered()[-1]
    recorded = replace(process, **change)  # type: ignore[arg-type]
    (tmp_path / FILE).write_text(json.dumps(asdict(recorded)) + "\n")
    assert ProcessRegistry(tmp_path).registered() == [recorded]
    assert ProcessRegistry(tmp_path).leftovers() == []
    ProcessRegistry(tmp_path).end_leftovers(1.0)
    assert child.poll() is None


def test_a_line_cut_short_by_a_kill_hides_no_other(tmp_path: Path, start: Start) -> None:
    ProcessRegistry(tmp_path).register("first", start(WAITS).pid)
    first = ProcessRegistry(tmp_path).registered()[-1]
    with (tmp_path / FILE).open("a") as file:
        file.write('{"role": "torn", "pi')
    ProcessRegistry(tmp_path).register("second", start(WAITS).pid)
    second = ProcessRegistry(tmp_path).registered()[-1]
    assert ProcessRegistry(tmp_path).registered() == [first, second]


def test_a_folder_without_a_registry_has_no_leftovers(tmp_path: Path) -> None:
    ProcessRegistry(tmp_path).end_leftovers(1.0)
    assert ProcessRegistry(tmp_path).leftovers() == []


def is_running(process: ProcessRecord) -> bool:
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"

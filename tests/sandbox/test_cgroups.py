"""Control groups of both versions are found where they can be made, and limited as asked."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from agentrl_sandbox import Limits
from agentrl_sandbox.cgroups import Cage, find_homes
from agentrl_sandbox.host import Making

from tests.sandbox.conftest import TIGHT


def line(mount: Path, kind: str, options: str) -> str:
    return f"30 25 0:26 / {mount} rw,relatime - {kind} cgroup {options}"


def test_version_1_homes_lie_below_our_own_cgroup(tmp_path: Path) -> None:
    text = []
    for name in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / name / "job").mkdir(parents=True)
        text.append(line(tmp_path / name, "cgroup", f"rw,{name}"))
    membership = "3:memory:/job\n2:pids:/job\n1:cpu,cpuacct:/job\n0::/"
    found = find_homes("\n".join(text), membership)
    assert found == (1, {
        "memory": tmp_path / "memory/job/agentrl",
        "pids": tmp_path / "pids/job/agentrl",
        "cpu": tmp_path / "cpu,cpuacct/job/agentrl",
        "cpuacct": tmp_path / "cpu,cpuacct/job/agentrl",
    })  # fmt: skip


def test_where_a_container_does_not_show_our_own_cgroup_they_lie_below_the_mount(tmp_path: Path) -> None:
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    text = "\n".join(line(tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "pids"))
    found = find_homes(text, "3:memory:/docker/abc\n2:pids:/docker/abc")
    assert found == (1, {name: tmp_path / name / "agentrl" for name in ("memory", "pids")})


def test_without_memory_or_pids_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    assert find_homes(line(tmp_path / "memory", "cgroup", "rw,memory"), "3:memory:/") is None
    assert find_homes("", "0::/") is None


class Kernel:
    """What a cgroup2 file system does that a folder does not: control files appear, and add up what is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, given: dict[Path, str]) -> None:
        self.control = {path / "cgroup.subtree_control": value.split() for path, value in given.items()}
        self.refuses: set[Path] = set()
        write, read = Path.write_text, Path.read_text

        def write_text(path: Path, text: str, *args: object) -> int:
            if path.name != "cgroup.subtree_control":
                return write(path, text)
            if path.parent in self.refuses:
                raise OSError(16, "busy")
            parent = self.control.get(path.parent.parent / path.name, [])
            if path in self.control or text[1:] in parent:
                self.control.setdefault(path, []).append(text[1:])
                return len(text)
            raise OSError(2, "the parent does not give it")

        def read_text(path: Path, *args: object, **kwargs: object) -> str:
            if path.name == "cgroup.subtree_control":
                return " ".join(self.control.get(path, []))
            return read(path)

        monkeypatch.setattr(Path, "write_text", write_text)
        monkeypatch.setattr(Path, "read_text", read_text)


def test_version_2_homes_lie_below_the_nearest_ancestor_that_gives_its_children_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "user.slice" / "session"
    own.mkdir(parents=True)
    kernel = Kernel(monkeypatch, {tmp_path / "user.slice": "memory pids cpu"})
    kernel.refuses = {own}  # it holds processes, so its children get nothing
    found = find_homes(line(tmp_path, "cgroup2", "rw"), "0::/user.slice/session")
    home = tmp_path / "user.slice" / "agentrl"
    assert found == (2, {"memory": home, "pids": home, "cpu": home})
    assert not (own / "agentrl").exists()


def test_version_2_without_delegation_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "session").mkdir()
    kernel = Kernel(monkeypatch, {})
    kernel.refuses = {tmp_path, tmp_path / "session"}
    assert find_homes(line(tmp_path, "cgroup2", "rw"), "0::/session") is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, {
            "memory.limit_in_bytes": str(TIGHT.memory_bytes), "memory.memsw.limit_in_bytes": str(TIGHT.memory_bytes),
            "memory.kmem.tcp.limit_in_bytes": str(TIGHT.memory_bytes // 8),
            "pids.max": str(TIGHT.processes + 1), "cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000",
        }),
        (2, {
            "memory.max": str(TIGHT.memory_bytes), "memory.swap.max": "0", "pids.max": str(TIGHT.processes + 1),
            "cpu.max": "100000 100000",
        }),
    ],
)  # fmt: skip
def test_limits_are_written_in_the_versions_own_words(tmp_path: Path, version: int, expected: dict[str, str]) -> None:
    cage = Cage(dict.fromkeys(("memory", "pids", "cpu"), tmp_path / "lease"), version)
    cage.make(TIGHT)
    assert {path.name: path.read_text() for path in (tmp_path / "lease").iterdir()} == expected


def test_a_kill_for_memory_is_read_in_either_version(tmp_path: Path) -> None:
    folders = dict.fromkeys(("memory", "pids"), tmp_path)
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "memory.events").write_text("low 0\nmax 5\noom 1\noom_kill 0\n")
    assert Cage(folders, 1).is_out_of_memory()
    assert not Cage(folders, 2).is_out_of_memory()


def test_buffers_of_sockets_are_counted_by_version_2_and_where_version_1_took_a_limit(tmp_path: Path) -> None:
    folders = dict.fromkeys(("memory", "pids"), tmp_path)
    assert Cage(folders, 2).counts_sockets()
    assert not Cage(folders, 1).counts_sockets()
    (tmp_path / "memory.kmem.tcp.limit_in_bytes").write_text("9223372036854771712\n")
    assert not Cage(folders, 1).counts_sockets()
    (tmp_path / "memory.kmem.tcp.limit_in_bytes").write_text("8388608\n")
    assert Cage(folders, 1).counts_sockets()


def test_processor_time_is_read_where_the_version_counts_it(tmp_path: Path) -> None:
    both = dict.fromkeys(("memory", "pids"), tmp_path)
    assert [(each.file, each.key) for each in Cage(both, 2).meters()][2:] == [("cpu.stat", "usage_usec")]
    assert [(each.file, each.key) for each in Cage(both, 1).meters()][2:] == []
    assert [(each.file, each.key) for each in Cage(both | {"cpuacct": tmp_path}, 1).meters()][2:] == [
        ("cpuacct.usage", "")
    ]


async def test_a_start_that_is_cancelled_while_its_cgroups_are_made_leaves_none(tmp_path: Path) -> None:
    home = tmp_path / "pids"
    begun, may_go, is_over = threading.Event(), threading.Event(), threading.Event()

    class Slow(Cage):
        def make(self, limits: Limits) -> None:
            begun.set()
            may_go.wait(10)
            home.mkdir()
            is_over.set()

    making = Making(Slow({"pids": home}, 1), TIGHT)
    start = asyncio.create_task(making.made())
    await asyncio.to_thread(begun.wait, 10)
    start.cancel()
    with suppress(asyncio.CancelledError):
        await start
    threading.Timer(0.05, may_go.set).start()
    making.undo()
    await asyncio.to_thread(is_over.wait, 10)
    assert not home.exists()

"""Files that programs leave: of any name, number, depth and kind, they hinder nobody but their own program."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from agentrl_sandbox import Backend, Limit, RefusedError, Sandbox, leases, shell
from agentrl_sandbox.inside.job import Job
from agentrl_sandbox.inside.warden import Warden

from tests.sandbox.asking import another, assert_serves, printed, python
from tests.sandbox.conftest import backend

DEEP = """
import os
for _ in range(10_000):
    os.mkdir("d")
    os.chdir("d")
open("last", "w").close()
"""
MANY = "import os\nfor number in range(5000): os.close(os.open(f'file {number}', os.O_CREAT))"
CLOSED = "import os\nos.makedirs('a/b/c'); open('a/b/c/f', 'w').close(); os.chmod('a/b', 0); os.chmod('a', 0)"
ODD = [b"\xff\xfe", b"\xed\xa0\x80", b"a\nb", b" ", b"-rf", b"x" * 255, b"\x01\x1b[2J", b"'\"$(id)`"]
KINDS = """
import os, socket
os.mkfifo("fifo"); os.symlink("/nowhere", "link"); os.symlink(".", "self"); os.link("link", "hard")
socket.socket(socket.AF_UNIX).bind("socket")
"""


@pytest.mark.parametrize("source", [DEEP, MANY, CLOSED, KINDS], ids=["deep", "many", "closed", "kinds"])
async def test_whatever_a_program_leaves_the_sandbox_serves(walls: Backend, source: str) -> None:
    async with another(walls) as sandbox:
        assert (await python(sandbox, source)).is_ok
        with suppress(RefusedError):  # of what is too deep, closed, or a second name of a link that leads outside
            await sandbox.restore(await sandbox.snapshot())
        for path in ("fifo", "self/self/fifo", "d/" * 3000 + "last", "d/d", "a/b/c/f", "missing"):
            with pytest.raises(RefusedError):
                await sandbox.read(path)
        await sandbox.write("new", b"content")
        assert await sandbox.read("new") == b"content"
        await assert_serves(sandbox)
    assert sandbox.id not in leases.marked()


async def test_names_of_any_bytes_come_back_from_a_snapshot(sandbox: Sandbox) -> None:
    make = f"import os\nfor name in {ODD!r}:\n    with open(name, 'wb') as file: file.write(name)"
    assert (await python(sandbox, make)).is_ok
    saved = await sandbox.snapshot()
    await sandbox.exec(shell("rm -rf /tmp/work"))
    await sandbox.restore(saved)
    check = f"import os; print({{n: open(n, 'rb').read() for n in os.listdir(b'.')}} == {{n: n for n in {ODD!r}}})"
    assert await printed(sandbox, check) == "True"
    await sandbox.exec(shell("rm -rf /tmp/work"))


@pytest.mark.parametrize(
    ("blocks", "files", "free_files", "is_full"),
    [(5, 100, 50, False), (0, 100, 50, True), (5, 100, 0, True), (5, 0, 0, False)],
)
def test_a_disk_is_full_without_room_for_bytes_or_for_files(
    blocks: int, files: int, free_files: int, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warden, job = object.__new__(Warden), SimpleNamespace(hits=set[str]())
    warden.gauges, warden.counts, warden.room = [], [], 0
    room = SimpleNamespace(f_bavail=blocks, f_files=files, f_favail=free_files)
    monkeypatch.setattr("agentrl_sandbox.inside.warden.os.statvfs", lambda fd: room)
    warden.check_gauges(cast("Job", job))
    assert job.hits == ({"disk"} if is_full else set())


async def test_a_link_in_place_of_the_working_folder_hides_no_full_disk(sandbox: Sandbox) -> None:
    fill = "with open('f', 'wb') as file:\n    while True: file.write(bytes(1 << 16))"
    hide = "os.chdir('/'); os.rename('/tmp/work', '/tmp/away'); os.symlink('/dev/shm', '/tmp/work')"
    result = await python(
        sandbox, f"import os\ntry:\n    {fill.replace(chr(10), chr(10) + '    ')}\nfinally:\n    {hide}"
    )
    assert Limit.DISK in result.hits
    await sandbox.exec(shell("rm -rf /tmp/work /tmp/away"))


@pytest.mark.parametrize("source", [DEEP, CLOSED, KINDS, MANY], ids=["deep", "closed", "kinds", "many"])
async def test_nothing_is_left_on_the_machine_of_what_a_program_has_made(source: str) -> None:
    async with another(backend("process")) as sandbox:
        assert (await python(sandbox, source)).is_ok
        (work,) = [lease.work for lease in leases.recorded() if lease.id == sandbox.id]
        assert work.is_dir()
    assert not work.exists()


def test_a_file_elsewhere_stays_where_a_link_leads_to_it(tmp_path: Path) -> None:
    kept, top = tmp_path / "kept", tmp_path / "top"
    (kept / "folder").mkdir(parents=True)
    (top / "in").mkdir(parents=True)
    for place in (top, top / "in"):
        (place / "link").symlink_to(kept)
    leases._remove(top)
    assert not top.exists()
    assert (kept / "folder").is_dir()

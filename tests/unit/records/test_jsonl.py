"""JSON lines survive what a kill and a power loss leave, and a failure to close hides no earlier error."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import msgspec
import pytest

from agentrl.errors import LearnerError, RunError
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.jsonl import JsonLines, atomic, closing, read_jsonl
from tests.unit.records.synthetic import trajectory


class Line(msgspec.Struct):
    n: int


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize(("torn", "read"), [(b"", [1, 3]), (b'{"n":', [1, 3]), (b'{"n":2}', [1, 2, 3])])
def test_the_tail_of_zeros_that_a_power_loss_leaves_is_torn(
    tmp_path: Path, torn: bytes, read: list[int], end: bytes
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"n":1}\n' + torn + bytes(5000) + end)
    assert [line.n for line in read_jsonl(path, Line)] == read[:-1]
    lines = JsonLines(path)
    lines.append(Line(3))
    lines.close()
    assert [line.n for line in read_jsonl(path, Line)] == read


def test_a_link_is_followed_and_a_pipe_is_written(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    with atomic(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")

    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic(pipe) as file:
        file.write(b"new")
    assert (os.read(reader, 10), pipe.is_fifo()) == (b"new", True)
    os.close(reader)
    assert {path.name for path in tmp_path.iterdir()} == {"target", "link", "pipe"}


def test_a_full_disk_at_the_end_does_not_hide_why_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    journal = RunJournal(RunFolder(tmp_path))
    journal.store.append([trajectory(0, 0)])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LearnerError, match="rank 0 died") as raised, closing(journal):
        raise LearnerError("rank 0 died")
    [note] = raised.value.__notes__
    assert "No space left on device. Make room" in note
    journal.close()  # every file is closed already

    journal = RunJournal(RunFolder(tmp_path))
    journal.store.append([trajectory(1, 0)])
    with pytest.raises(RunError, match="No space left on device"), closing(journal):
        pass


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path)
    lines.append(Line(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, limits[1]))
    try:
        with pytest.raises(RunError, match="agentrl resume"):
            lines.append(Line(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines.append(Line(3))
    lines.close()
    assert path.read_bytes() == b'{"n":1}\n{"n":3}\n'

"""One driver for a run: a lock that the kernel takes back, where the file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from agentrl.errors import RunError
from agentrl.records.folder import RunFolder, check_free, run_lock


def test_a_folder_has_one_driver_at_a_time(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        for enter in (check_free, lambda folder: run_lock(folder).__enter__()):
            with pytest.raises(RunError, match=f"is in use by process {os.getpid()} on {socket.gethostname()}"):
                enter(tmp_path)
    check_free(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_holds_up_no_run(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with run_lock(tmp_path):
        assert RunFolder(tmp_path).lock.read_text() == f"{os.getpid()} on {socket.gethostname()}"


def test_a_lock_that_fails_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="broken"), run_lock(tmp_path):
        pass


def test_a_lock_with_foreign_bytes_still_says_that_the_folder_is_in_use(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        RunFolder(tmp_path).lock.write_bytes(b"\xff")
        with pytest.raises(RunError, match="is in use by process \N{REPLACEMENT CHARACTER}"):
            check_free(tmp_path)

"""One driver for a run: a lock that the kernel takes back, where the file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from agentrl.errors import RunError
from agentrl.records.hold import FILE, check_free, held


def test_a_folder_has_one_driver_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path):
        for enter in (check_free, lambda folder: held(folder).__enter__()):
            with pytest.raises(RunError, match=f"process {os.getpid()} drives it"):
                enter(tmp_path)
    check_free(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_holds_up_no_run(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with held(tmp_path):
        assert (tmp_path / FILE).read_text() == str(os.getpid())


def test_a_lock_that_fails_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="broken"), held(tmp_path):
        pass

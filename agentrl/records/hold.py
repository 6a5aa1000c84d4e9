"""One process at a time drives a run: it holds a lock, which the kernel takes back however the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.errors import RunError

FILE = "driver.lock"
UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""How file systems without locks answer, such as Lustre as it is often mounted: there nothing can be checked."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Drive the run in `folder` inside. Raises RunError with the id of the process that drives it already."""
    path = folder / FILE
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder} is a run that is going on: process {path.read_text()} drives it") from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def check_free(folder: Path) -> None:
    """Raise the same RunError where a process drives the run in `folder`; changes nothing."""
    if (folder / FILE).exists():
        with held(folder):
            return

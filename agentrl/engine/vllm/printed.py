"""What vLLM's processes print: the only place where they say why they could not start."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

STDERR = 2
ELSEWHERE = "root cause"
"""Part of the errors of vLLM that only point to others, which were printed before."""
IGNORED = "Exception ignored"
"""What Python prints before the traceback of an error in a destructor."""


def points_elsewhere(error: BaseException) -> bool:
    """Return whether an error of vLLM only says that another was printed."""
    return ELSEWHERE in str(error)


class Printed:
    """What this process and its children print to stderr from now on, if it goes to a file, as that of an actor does.

    A terminal or a pipe cannot be read again; there the user reads it.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        self._file: Path | None = None
        with suppress(OSError):
            found = os.fstat(descriptor)
            self._before = found.st_size
            self._file = Path(f"/proc/self/fd/{descriptor}") if stat.S_ISREG(found.st_mode) else None

    def first_error(self) -> str:
        """Return the first error that a process of vLLM logged, else the last that ends a traceback, "" if none.

        The processes that are logged later mostly fail because the first one did.
        """
        lines = self._lines()
        logged = (_message(line) for line in lines if line.startswith("(") and ") ERROR " in line)
        printed = [line.strip() for line in _without_ignored(lines)]
        return next(filter(_is_error, logged), "") or next(filter(_is_error, reversed(printed)), "")

    def _lines(self) -> list[str]:
        if self._file is None:
            return []
        with suppress(OSError), self._file.open("rb") as file:
            file.seek(self._before)
            return file.read().decode(errors="replace").splitlines()
        return []


def _message(line: str) -> str:
    """Return a line of a log without the process, time and place before it."""
    return line.partition("] ")[2].strip()


def _without_ignored(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, but no error that was raised in a destructor."""
    is_ignored = False
    for line in lines:
        is_ignored = is_ignored or line.startswith(IGNORED)
        if is_ignored and _is_error(line.strip()):
            is_ignored = False
        elif not is_ignored:
            yield line


def _is_error(line: str) -> bool:
    """Return whether a line is the last one of a traceback, and not of an error that only points to others."""
    name = line.partition(": ")[0]
    is_name = name.endswith(("Error", "Exception")) and all(map(str.isidentifier, name.split(".")))
    return is_name and ELSEWHERE not in line

"""What vLLM's processes print: the only place where they say why they could not start."""

from __future__ import annotations

import os
import stat
from pathlib import Path

STDERR = 2
ELSEWHERE = "root cause"
"""Part of the errors that only point to others, which were printed before."""


class Printed:
    """What this process and its children print to stderr from now on, if it goes to a file, as that of an actor does.

    A terminal or a pipe cannot be read again; there the user reads it.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        found = os.fstat(descriptor)
        self._file = Path(f"/proc/self/fd/{descriptor}") if stat.S_ISREG(found.st_mode) else None
        self._before = found.st_size

    def last_error(self) -> str:
        """Return the last line that ends a traceback, but for those of errors that only point to others; "" if none."""
        if self._file is None:
            return ""
        with self._file.open("rb") as file:
            file.seek(self._before)
            text = file.read().decode(errors="replace")
        errors = (line for line in map(_message, text.splitlines()) if _is_error(line) and ELSEWHERE not in line)
        return next(reversed([*errors]), "")


def _message(line: str) -> str:
    """Return a line without the process, time and place that vLLM writes before it."""
    return (line.partition("] ")[2] if line.startswith("(") else line).strip()


def _is_error(line: str) -> bool:
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.endswith(("Error", "Exception")) and all(map(str.isidentifier, name.split(".")))

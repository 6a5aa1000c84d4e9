"""Reader of the kernel's files about processes and limits; nothing here raises.

These files mix numbers with names that programs choose: 15 arbitrary bytes, including parentheses, keys and, in some
kernels, line feeds. Only positions that the kernel alone writes are trusted.
"""

from __future__ import annotations

import os

TICKS = os.sysconf("SC_CLK_TCK")
MAX_BYTES = 1 << 14
MAX_DIGITS = 20
STATE, PARENT, CPU, STARTED = 0, 1, slice(11, 15), 19  # fields of /proc/PID/stat after the name


class Process:
    """Content of /proc/PID/stat: `cpu_s` includes the time of children that it has waited for."""

    __slots__ = ("cpu_s", "parent", "pid", "started", "state")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid, self.state, self.parent = pid, fields[STATE], _int(fields[PARENT])
        self.cpu_s, self.started = sum(map(_int, fields[CPU])) / TICKS, _int(fields[STARTED])


def process(pid: int) -> Process | None:
    """Return the process with this pid, or None."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # no parenthesis follows the name
    return Process(pid, fields) if len(fields) > STARTED else None


def processes() -> dict[int, Process]:
    """Return all processes by pid, including zombies."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    found = (process(int(name)) for name in names if name.isdecimal())
    return {each.pid: each for each in found if each}


def number(path: str, key: bytes) -> int:
    """Return the number after `key` at the start of a line (the last such line), or in a file without keys; else 0."""
    lines = [line.split() for line in read(path).split(b"\n")]
    if not key:
        return _int(lines[0][0]) if lines[0] else 0
    return next((_int(words[1]) for words in reversed(lines) if len(words) > 1 and words[0] == key), 0)


def read(path: str) -> bytes:
    """Return the first bytes of a small file, or b"" if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, MAX_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _int(word: bytes) -> int:
    return int(word) if word.isdigit() and len(word) <= MAX_DIGITS else 0

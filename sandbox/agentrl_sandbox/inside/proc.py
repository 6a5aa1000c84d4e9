"""The one reader of what the kernel says of processes and limits; nothing in here raises.

A program chooses names, which stand in there among the numbers: 15 bytes of any kind, with parentheses, keys, and from
some kernels line feeds. Only what stands where the kernel alone writes is believed.
"""

from __future__ import annotations

import os

TICKS = os.sysconf("SC_CLK_TCK")
MOST_BYTES = 1 << 14
MOST_DIGITS = 20
STATE, PARENT, CPU, STARTED = 0, 1, slice(11, 15), 19  # fields of /proc/PID/stat behind the name


class Process:
    """What /proc/PID/stat says: `cpu_s` is its own time and that of the children it has waited for."""

    __slots__ = ("cpu_s", "parent", "pid", "started", "state")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid, self.state, self.parent = pid, fields[STATE], _int(fields[PARENT])
        self.cpu_s, self.started = sum(map(_int, fields[CPU])) / TICKS, _int(fields[STARTED])


def process(pid: int) -> Process | None:
    """Return the process of this number; None when there is none."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # behind the name there is no parenthesis
    return Process(pid, fields) if len(fields) > STARTED else None


def processes() -> dict[int, Process]:
    """Return all of them, zombies too."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    found = (process(int(name)) for name in names if name.isdecimal())
    return {each.pid: each for each in found if each}


def number(path: str, key: bytes) -> int:
    """The number behind `key` at the beginning of a line (the last such line), or of a file without keys; else 0."""
    lines = [line.split() for line in read(path).split(b"\n")]
    if not key:
        return _int(lines[0][0]) if lines[0] else 0
    return next((_int(words[1]) for words in reversed(lines) if len(words) > 1 and words[0] == key), 0)


def read(path: str) -> bytes:
    """Return the first bytes of a small file; none where it cannot be read, or is gone meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _int(word: bytes) -> int:
    return int(word) if word.isdigit() and len(word) <= MOST_DIGITS else 0

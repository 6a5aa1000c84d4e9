"""Programs, limits, results, and the protocols of sandboxes and backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Protocol

MIB = 1 << 20


class Limit(StrEnum):
    """A limit that a program hit."""

    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    OUTPUT = "output"
    PROCESSES = "processes"
    DISK = "disk"


class Stream(StrEnum):
    """Origin of a piece of output."""

    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of programs. The first three apply to each run, the others to the whole sandbox.

    `cpu_s` counts all processes of a run, including those that a session left running before; `output_bytes` counts
    stdout and stderr together. Exceeding either ends the run.
    """

    wall_s: float = 10.0
    cpu_s: float = 10.0
    output_bytes: int = MIB
    memory_bytes: int = 512 * MIB
    processes: int = 64
    disk_bytes: int = 64 * MIB
    open_files: int = 256
    cpus: float = 1.0

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name), is_whole=isinstance(each.default, int))


MINIMUM = {"memory_bytes": 16 * MIB, "processes": 2, "disk_bytes": 4096, "open_files": 16, "cpus": 0.01}
"""Minimum values: the interpreter does not run with less."""
MAX_WHOLE, MAX_REAL = 1 << 62, 1e9
"""Maximum values: what the kernel accepts, and thirty years in seconds."""
SHOWN, MAX_BITS = 40, 1 << 13


def _check(name: str, value: object, is_whole: bool) -> None:
    """Raise TypeError or ValueError if a limit is invalid."""
    kinds, kind = ((int,), "a whole number") if is_whole else ((int, float), "a number")
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"Limits.{name} is {repr(value)[:SHOWN]}; it must be {kind}")
    assert isinstance(value, int | float)
    most = MAX_WHOLE if is_whole else MAX_REAL
    if not 0 < value <= most:  # also rejects NaN
        raise ValueError(f"Limits.{name} is {_shown(value)}; it must be {kind} above 0 and at most {most}")
    if value < MINIMUM.get(name, 0):
        raise ValueError(f"Limits.{name} is {value}; it must be {kind} of at least {MINIMUM[name]}")


def _shown(value: float) -> str:
    """Format a number for an error; Python does not convert integers of thousands of digits."""
    return str(value)[:SHOWN] if isinstance(value, float) or value.bit_length() < MAX_BITS else "of too many digits"


@dataclass(frozen=True, slots=True)
class Python:
    """A Python program and its `sys.argv[1:]`. It runs in a fresh `__main__`."""

    source: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, found on the sandbox's PATH and run without a shell."""

    args: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.args or isinstance(self.args, str):
            raise ValueError(f"Command needs a tuple of words, not {self.args!r}")


def shell(script: str) -> Command:
    """Return the command that runs a script with `sh`."""
    return Command(("sh", "-c", script))


Program = Python | Command


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Result of a run. `exit_code` is minus the signal number if a signal ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    hits: frozenset[Limit]
    """The limits that were hit; empty if the program ended by itself within all of them."""
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    is_state_lost: bool = False
    """For sessions: True if the interpreter ended, so that the next run starts a new one."""

    @property
    def is_ok(self) -> bool:
        """True if it ended by itself with exit code 0 and within its limits."""
        return self.exit_code == 0 and not self.hits


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The working folder as a tar archive made by untrusted code. Only `restore` may unpack it."""

    archive: bytes = field(repr=False)


class Sandbox(Protocol):
    """One sandbox. Its programs run one at a time: calls, all from one event loop, wait for each other.

    Every call has a deadline and raises SandboxError if the sandbox fails.
    """

    @property
    def id(self) -> str:
        """The id of its lease."""

    async def exec(
        self,
        program: Program,
        stdin: bytes = b"",
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        is_clean: bool = False,
    ) -> ExecResult:
        """Run a program; everything it started is gone when this returns.

        `limits` replaces the limits of this run (wall_s, cpu_s, output_bytes); `on_output` gets output as it is
        written. `is_clean`: first remove the files of earlier programs, within the program's time.
        """

    async def run(self, source: str, limits: Limits | None = None, on_output: OnOutput | None = None) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter; like a notebook, it prints a last expression's value.

        The exit code comes from the interpreter: 0, or 1 after an exception. A run out of time is interrupted, and
        killed if that does not end it.
        """

    async def read(self, path: str, most: int | None = None) -> bytes:
        """Read a file of the working folder.

        Raises RefusedError for links, for anything but a regular file, and for a file of more than `most` bytes.
        """

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file of the working folder, with missing parent folders."""

    async def snapshot(self) -> Snapshot:
        """Return the working folder as an archive."""

    async def restore(self, snapshot: Snapshot) -> None:
        """Unpack a snapshot into the working folder."""

    async def close(self) -> None:
        """Kill everything in it and remove it; idempotent."""

    def kill(self) -> None:
        """Kill everything in it at once, without waiting; `close` does the rest."""

    def is_healthy(self) -> bool:
        """Return False if it is known to be dead."""


class Backend(Protocol):
    """Factory of sandboxes."""

    @property
    def name(self) -> str:
        """One of `bubblewrap`, `docker`, `process` and `remote`."""

    def describe(self) -> str:
        """Describe in one line what enforces which limits here."""

    async def create(self, limits: Limits) -> Sandbox:
        """Create a fresh sandbox."""

    async def close(self) -> None:
        """Release what its sandboxes share."""

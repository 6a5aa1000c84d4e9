"""What goes into a sandbox and what comes out: programs, limits, results."""

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
    """Where a piece of output came from."""

    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far programs may go. The first three hold for each run, the others for all of a sandbox together.

    `cpu_s` counts every process of a run, and whatever a session has left running since the run before; `output_bytes`
    counts stdout and stderr together. Going beyond either ends the run.
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


LEAST = {"memory_bytes": 16 * MIB, "processes": 2, "disk_bytes": 4096, "open_files": 16, "cpus": 0.01}
"""With less not even the interpreter runs."""
MOST_WHOLE, MOST_REAL = 1 << 62, 1e9
"""What the kernel can be told; seconds of thirty years."""
SHOWN, MOST_BITS = 40, 1 << 13


def _check(name: str, value: object, is_whole: bool) -> None:
    """TypeError or ValueError where it is no such limit."""
    kinds, kind = ((int,), "a whole number") if is_whole else ((int, float), "a number")
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"Limits.{name} is {repr(value)[:SHOWN]}; give {kind}")
    assert isinstance(value, int | float)
    most = MOST_WHOLE if is_whole else MOST_REAL
    if not 0 < value <= most:  # as NaN is not
        raise ValueError(f"Limits.{name} is {_shown(value)}; give {kind} above 0, {most} at most")
    if value < LEAST.get(name, 0):
        raise ValueError(f"Limits.{name} is {value}; give {kind}, {LEAST[name]} at least")


def _shown(value: float) -> str:
    """Return a number for an error; Python itself writes no integer of thousands of digits."""
    return str(value)[:SHOWN] if isinstance(value, float) or value.bit_length() < MOST_BITS else "of too many digits"


@dataclass(frozen=True, slots=True)
class Python:
    """A Python program: its text, and `sys.argv[1:]`. It runs in a fresh `__main__`."""

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
    """Return the command that has `sh` run a script."""
    return Command(("sh", "-c", script))


Program = Python | Command


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a run ended. `exit_code` is minus the signal's number where a signal ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    hits: frozenset[Limit]
    """The limits that were hit; empty when the program ended by itself within all of them."""
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    is_state_lost: bool = False
    """Of a session: the interpreter ended, and the next run begins in a new one."""

    @property
    def is_ok(self) -> bool:
        """It ended by itself, with 0, within its limits."""
        return self.exit_code == 0 and not self.hits


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The working folder at one moment: a tar archive made by untrusted code. Restore it; never unpack it here."""

    archive: bytes = field(repr=False)


class Sandbox(Protocol):
    """One sandbox. Its programs run one at a time: calls, from one event loop, wait for each other.

    Every call has a deadline and raises SandboxError when the sandbox fails.
    """

    @property
    def id(self) -> str:
        """The name it has in the registry of leases."""

    async def exec(
        self,
        program: Program,
        stdin: bytes = b"",
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        is_clean: bool = False,
    ) -> ExecResult:
        """Run a program to its end; everything it started is gone when this returns.

        `limits` replaces the run's own (wall_s, cpu_s, output_bytes); `on_output` gets the output while it is written.
        `is_clean`: files that earlier programs have left are removed first, in the program's time.
        """

    async def run(self, source: str, limits: Limits | None = None, on_output: OnOutput | None = None) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter; like a notebook it shows a last expression's value.

        The exit code is the interpreter's own word: 0, or 1 after an exception. A run out of time is interrupted, and
        killed when it does not heed that.
        """

    async def read(self, path: str, most: int | None = None) -> bytes:
        """A file of the working folder; RefusedError for links and for anything that is not a regular file there.

        And for a file of more than `most` bytes, where that is given.
        """

    async def write(self, path: str, content: bytes) -> None:
        """Make or replace a file of the working folder, with the folders above it."""

    async def snapshot(self) -> Snapshot:
        """Return the working folder."""

    async def restore(self, snapshot: Snapshot) -> None:
        """Put a snapshot's files into the working folder."""

    async def close(self) -> None:
        """End everything in it and remove it; safe to call twice."""

    def kill(self) -> None:
        """End everything in it at once, without waiting; `close` does the rest."""

    def is_healthy(self) -> bool:
        """False when it is known to be dead."""


class Backend(Protocol):
    """A way to make sandboxes."""

    @property
    def name(self) -> str:
        """Its name: `bubblewrap`, `docker`, `process` or `remote`."""

    def describe(self) -> str:
        """Return how it is set up here, in one line: what enforces which limits."""

    async def create(self, limits: Limits) -> Sandbox:
        """Return a sandbox that has run nothing yet."""

    async def close(self) -> None:
        """Let go of what its sandboxes shared."""

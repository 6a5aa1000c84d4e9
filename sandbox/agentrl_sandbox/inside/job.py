"""One order in progress: the confined child, its pipes, its output, and the limits that it hit."""

from __future__ import annotations

import os
import sys
import time

from agentrl_sandbox.inside import wire
from agentrl_sandbox.inside.child import Cell, confine, enter, keep_only
from agentrl_sandbox.inside.programs import perform
from agentrl_sandbox.inside.tree import SIGKILL, Ended

CHUNK_BYTES = 1 << 16
MAX_READS = 256
"""Reads per wake-up, enough for a full pipe: an endless writer must not keep the warden from its clock."""

SIGXCPU = 24
NOT_BEGUN = 125


class Order:
    """A command and its limits: the fields of an order frame."""

    def __init__(self, payload: bytes) -> None:
        verb, wall_s, cpu_s, output_bytes, is_streamed, stdin, *args = wire.unpack(payload)
        self.verb, self.args, self.stdin = verb, args, stdin
        self.wall_s, self.cpu_s = float(wall_s), float(cpu_s)
        self.output_bytes, self.is_streamed = int(output_bytes), is_streamed == b"1"
        self.is_session = verb == b"session"


class Process:
    """A confined child and our ends of its pipes; a session has two more, for sources and for exit codes.

    Its stdin is a file with the whole input, as with a shell's `<`; a pipe if the kernel lacks memfds.
    `is_first`: nothing has run in the sandbox yet; `is_alone`: nothing runs there that could disturb its start.
    """

    def __init__(self, order: Order, cell: Cell, is_first: bool, is_alone: bool) -> None:
        self.fds: set[int] = set()
        self.is_alone = is_alone
        self._has_begun = False
        theirs = [] if order.is_session else _filled(order.stdin)
        self.stdin = -1 if theirs else self._pipe(theirs, is_read=False)
        self.stdout, self.stderr = self._pipe(theirs, is_read=True), self._pipe(theirs, is_read=True)
        self.source = self._pipe(theirs, is_read=False) if order.is_session else -1
        self.codes = self._pipe(theirs, is_read=True) if order.is_session else -1
        self.begun = self._pipe(theirs, is_read=True)
        try:
            self.pid = os.fork()
        except OSError:
            self.pid = -1
        if self.pid == 0:
            _become(order, cell, is_first, theirs)
        for fd in theirs:
            os.close(fd)

    def _pipe(self, theirs: list[int], is_read: bool) -> int:
        ours, other = os.pipe() if is_read else os.pipe()[::-1]
        os.set_blocking(ours, False)
        os.fchmod(other, 0o666)  # lets the program open /dev/stdin by name
        theirs.append(other)
        self.fds.add(ours)
        return ours

    def has_begun(self) -> bool:
        """Return whether the child reached the program; if it did not, the program is not at fault."""
        if not self._has_begun:
            try:
                self._has_begun = os.read(self.begun, 1) != b""
            except OSError:
                pass
        return self._has_begun

    def close(self, *fds: int) -> None:
        """Close these pipes, or all without arguments."""
        for fd in fds or tuple(self.fds):
            os.close(fd)
            self.fds.discard(fd)


class Job:
    """State of an order that the warden carries out."""

    def __init__(self, order: Order, process: Process) -> None:
        self.order, self.process = order, process
        self.source = process.source if order.is_session else process.stdin
        self.left = memoryview(_framed(order.args[0]) if order.is_session else order.stdin if self.source >= 0 else b"")
        self.kinds = {process.stdout: wire.OUT, process.stderr: wire.ERR}
        self.output = {wire.OUT: bytearray(), wire.ERR: bytearray()}
        self.taken_bytes = 0
        self.hits: set[str] = set()
        self.exit_code: int | None = None
        self.peak_bytes = 0
        self.has_process_ended = self.has_begun = False
        self.started = time.monotonic()
        self.ends_at = self.started + order.wall_s

    def feed(self) -> bool:
        """Write as much as the pipe takes; return False if nothing is left or nobody reads."""
        try:
            self.left = self.left[os.write(self.source, self.left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self.left)

    def take(self, fd: int) -> bool:
        """Read what is in a pipe, up to the output limit; return False at its end, or if it cannot be read.

        A program can splice pages of a file into the pipe and then truncate the file.
        """
        kind = self.kinds[fd]
        for _ in range(MAX_READS):
            if "output" in self.hits:
                return False
            try:
                chunk = os.read(fd, CHUNK_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not chunk:
                return False
            room = self.order.output_bytes - self.taken_bytes
            self.output[kind] += chunk[:room]
            self.taken_bytes += min(room, len(chunk))
            if len(chunk) > room:
                self.hits.add("output")
        return True

    def was_hindered(self) -> bool:
        """Return whether it was killed, perhaps before it began, while other programs ran that could have done it."""
        return not self.process.is_alone and self.exit_code is not None and self.exit_code < 0

    def end(self, ended: Ended) -> None:
        """Record the end of the process."""
        self.has_process_ended = True
        self.peak_bytes = ended.peak_bytes
        self.exit_code = ended.exit_code if self.exit_code is None else self.exit_code
        if ended.exit_code == -SIGXCPU or (ended.exit_code == -SIGKILL and ended.cpu_s > self.order.cpu_s):
            self.hits.add("cpu")


def _become(order: Order, cell: Cell, is_first: bool, fds: list[int]) -> None:
    """In the child: confine the process, report that, run the program and exit. Never returns.

    For the first program the working folder is intact; for later ones it is what others have left of it.
    """
    code = NOT_BEGUN
    try:
        keep_only(fds)
        confine(cell, 0 if order.is_session else int(order.cpu_s) + 1)
        if is_first:
            enter(cell.work)
        _tell_begun(len(fds) - 1)
        if not is_first:
            enter(cell.work)
        code = perform(order.verb, order.args, cell)
    finally:
        try:
            if code == NOT_BEGUN:
                os.write(2, repr(sys.exc_info()[1]).encode(errors="replace"))
        finally:
            os._exit(code)


def _tell_begun(fd: int) -> None:
    os.write(fd, b"1")
    os.close(fd)


def _filled(content: bytes) -> list[int]:
    """Return a read-only descriptor of an unnamed file with this content; [] if it cannot be created."""
    try:
        writes = os.memfd_create("stdin")
    except (OSError, AttributeError):
        return []
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(writes, view) :]
        os.fchmod(writes, 0o444)  # lets the program open /dev/stdin by name
        return [os.open(f"/proc/self/fd/{writes}", os.O_RDONLY)]
    except OSError:
        return []
    finally:
        os.close(writes)


def _framed(source: bytes) -> bytes:
    return len(source).to_bytes(4, "big") + source

"""One order under way: the confined child, its pipes, what it has said, the limits it has hit."""

from __future__ import annotations

import os
import sys
import time

from agentrl_sandbox.inside import wire
from agentrl_sandbox.inside.child import Cell, confine, enter, keep_only
from agentrl_sandbox.inside.programs import perform
from agentrl_sandbox.inside.tree import SIGKILL, Ended

CHUNK_BYTES = 1 << 16
MOST_READS = 256
"""As many pieces as a pipe can hold: a writer that never stops does not keep the warden from its clock."""

SIGXCPU = 24
NOT_BEGUN = 125


class Order:
    """What to do, and how far it may go: the fields of an order frame."""

    def __init__(self, payload: bytes) -> None:
        verb, wall_s, cpu_s, output_bytes, is_streamed, stdin, *args = wire.unpack(payload)
        self.verb, self.args, self.stdin = verb, args, stdin
        self.wall_s, self.cpu_s = float(wall_s), float(cpu_s)
        self.output_bytes, self.is_streamed = int(output_bytes), is_streamed == b"1"
        self.is_session = verb == b"session"


class Process:
    """A confined child and our ends of its pipes; a session's has two more, for sources and for exit codes.

    Its stdin is a file that holds the whole input, as a shell's `<` gives it; a pipe where the kernel has none such.
    `is_first`: nothing has run in the sandbox; `is_alone`: nothing runs there that could hinder its start.
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
        os.fchmod(other, 0o666)  # so that the program may open /dev/stdin by its name
        theirs.append(other)
        self.fds.add(ours)
        return ours

    def has_begun(self) -> bool:
        """Return whether it came as far as the program; when it did not, the program is not to blame."""
        if not self._has_begun:
            try:
                self._has_begun = os.read(self.begun, 1) != b""
            except OSError:
                pass
        return self._has_begun

    def close(self, *fds: int) -> None:
        """Let go of these pipes; without arguments, of all."""
        for fd in fds or tuple(self.fds):
            os.close(fd)
            self.fds.discard(fd)


class Job:
    """What the warden knows of an order that it carries out."""

    def __init__(self, order: Order, process: Process) -> None:
        self.order, self.process = order, process
        self.source = process.source if order.is_session else process.stdin
        self.left = memoryview(_framed(order.args[0]) if order.is_session else order.stdin if self.source >= 0 else b"")
        self.kinds = {process.stdout: wire.OUT, process.stderr: wire.ERR}
        self.said = {wire.OUT: bytearray(), wire.ERR: bytearray()}
        self.said_bytes = 0
        self.hits: set[str] = set()
        self.exit_code: int | None = None
        self.peak_bytes = 0
        self.has_process_ended = self.has_begun = False
        self.started = time.monotonic()
        self.ends_at = self.started + order.wall_s

    def feed(self) -> bool:
        """Write what its pipe takes; False when nothing is left or nobody reads."""
        try:
            self.left = self.left[os.write(self.source, self.left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self.left)

    def take(self, fd: int) -> bool:
        """Read what stands in a pipe, up to the output limit; False when it has ended, or what stands there is spoilt.

        A program can splice pages of a file into it, and take them away from the file.
        """
        kind = self.kinds[fd]
        for _ in range(MOST_READS):
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
            room = self.order.output_bytes - self.said_bytes
            self.said[kind] += chunk[:room]
            self.said_bytes += min(room, len(chunk))
            if len(chunk) > room:
                self.hits.add("output")
        return True

    def was_hindered(self) -> bool:
        """Return whether it was killed while programs ran that could do that; before it began, say."""
        return not self.process.is_alone and self.exit_code is not None and self.exit_code < 0

    def end(self, ended: Ended) -> None:
        """The process has ended."""
        self.has_process_ended = True
        self.peak_bytes = ended.peak_bytes
        self.exit_code = ended.exit_code if self.exit_code is None else self.exit_code
        if ended.exit_code == -SIGXCPU or (ended.exit_code == -SIGKILL and ended.cpu_s > self.order.cpu_s):
            self.hits.add("cpu")


def _become(order: Order, cell: Cell, is_first: bool, fds: list[int]) -> None:
    """In the child: confine ourselves, say so, do it, end. Never returns.

    The working folder is the sandbox's own for the first program; for a later one it is what others have left of it.
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
    """Return a file of this content, open for reading alone and without a name; none where it cannot be had."""
    try:
        writes = os.memfd_create("stdin")
    except (OSError, AttributeError):
        return []
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(writes, view) :]
        os.fchmod(writes, 0o444)  # so that the program may open /dev/stdin by its name
        return [os.open(f"/proc/self/fd/{writes}", os.O_RDONLY)]
    except OSError:
        return []
    finally:
        os.close(writes)


def _framed(source: bytes) -> bytes:
    return len(source).to_bytes(4, "big") + source

"""The first process of a sandbox: trusted, and out of reach of the programs it forks.

It serves one order at a time, trusts nothing that a program reports about itself, and exits, ending everything in the
sandbox, when the host closes the channel: a killed host leaves no sandbox behind.

Nothing that a program does makes it raise: `proc`, `Tree` and `Job` read everything that programs can write or name and
cope with any content. Any other exception ends the sandbox, and the host determines who is at fault.
"""

from __future__ import annotations

import os
import select
import time

from agentrl_sandbox.inside import wire
from agentrl_sandbox.inside.child import Cell
from agentrl_sandbox.inside.job import Job, Order, Process
from agentrl_sandbox.inside.kernel import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, filter_calls, prctl, wake_on_child
from agentrl_sandbox.inside.proc import number
from agentrl_sandbox.inside.tree import SIGKILL, Ended, Tree

CPU_TICK_S = 0.25
INTERRUPT_S = 0.5
CLOCK = "cpu"  # the meter of CPU time; the others count hits of a limit
PIECE_BYTES = 1 << 20
SIGINT = 2


class HostGoneError(Exception):
    """The host has closed the channel."""


class Warden:
    """Server of the orders of one channel, one after the other."""

    def __init__(self, reads: int, writes: int, cell: Cell) -> None:
        self.reads, self.writes, self.cell = reads, writes, cell
        clocks = [(path, key) for limit, path, key in cell.meters if limit == CLOCK]
        self.gauges = [meter for meter in cell.meters if meter[0] != CLOCK]
        self.tree = Tree(clocks[0] if clocks else None)
        self.room = os.open(os.path.dirname(cell.work), os.O_PATH | os.O_CLOEXEC)  # programs may replace it later
        self.is_fresh = True  # no program has run yet
        self.session: Process | None = None
        self.is_state_lost = False  # since the session's last answer
        self.cpu_s, self.counts = (
            self.tree.cpu_s(is_idle=True),
            self.read_gauges(),
        )  # at the last answer; processes that continue count for the next
        self.woken, waker = os.pipe()
        for fd in (self.woken, waker):
            os.set_blocking(fd, False)
        wake_on_child(waker)

    def serve(self) -> None:
        """Serve orders until the host is gone."""
        _send(self.writes, wire.READY)
        while True:
            kind, _, payload = receive(self.reads)
            if kind != wire.ORDER:
                raise HostGoneError
            self.obey(Order(payload))

    def obey(self, order: Order) -> None:
        """Carry out one order, from the fork to the last frame of its answer."""
        self.tidy()
        job = Job(order, self.process_for(order))
        # Received only after the fork, so that the nonce is not in the program's copy of our memory.
        kind, nonce, _ = receive(self.reads)
        if kind != wire.NONCE:
            raise HostGoneError
        if job.process.pid > 0:
            self.watch(job, nonce)
        else:
            job.hits.add("processes")
        self.settle(job)
        self.check_gauges(job)
        before, self.cpu_s = self.cpu_s, max(self.cpu_s, self.tree.cpu_s(is_idle=self.session is None))
        self.answer(job, nonce, self.cpu_s - before)

    def tidy(self) -> None:
        """Kill what a session has left running if it ended in the meantime."""
        session = self.session
        self.note(self.tree.reap(), None)
        if session and not self.session:
            self.note(self.tree.kill(), None)

    def process_for(self, order: Order) -> Process:
        """Return a new process, or that of the session."""
        if order.is_session and self.session:
            _drain(self.session.codes)  # forged by the session: no cell is running
            return self.session
        process = Process(order, self.cell, is_first=self.is_fresh, is_alone=self.session is None)
        self.is_fresh = False
        if order.is_session:
            process.close(process.stdin)
            self.session = process
        return process

    # --- while it runs ----------------------------------------------------------------------------------------------

    def watch(self, job: Job, nonce: bytes) -> None:
        """Wait until the process ends, its session's cell ends, or a limit is hit."""
        poll = self.register(job)
        ticks_at = job.started + CPU_TICK_S
        while job.exit_code is None and "output" not in job.hits:
            now = time.monotonic()
            if now >= job.ends_at and not self.interrupt(job):
                return
            if now >= ticks_at:
                ticks_at = now + CPU_TICK_S
                if self.tree.cpu_s() - self.cpu_s > job.order.cpu_s:
                    job.hits.add("cpu")
                    return
            left_s = min(job.ends_at, ticks_at) - now
            for fd, _ in poll.poll(max(0.0, left_s) * 1000 + 1):
                self.handle(fd, job, poll)
            if job.order.is_streamed:
                self.send_output(job, nonce)

    def register(self, job: Job) -> select.poll:
        """Return a poll object for all descriptors of a job."""
        poll = select.poll()
        poll.register(self.reads, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        for fd in job.kinds:
            poll.register(fd, select.POLLIN)
        if job.order.is_session:
            poll.register(job.process.codes, select.POLLIN)
        if job.left:
            poll.register(job.source, select.POLLOUT)
        elif not job.order.is_session and job.source >= 0:
            job.process.close(job.source)
        return poll

    def handle(self, fd: int, job: Job, poll: select.poll) -> None:
        """Handle a file descriptor that is ready."""
        if fd == self.reads:
            raise HostGoneError
        if fd == self.woken:
            _drain(fd)
            self.note(self.tree.reap(), job)
        elif fd == job.source:
            if not job.feed():
                poll.unregister(fd)
                if not job.order.is_session:
                    job.process.close(fd)
        elif fd in job.kinds:
            if not job.take(fd):
                poll.unregister(fd)
        elif code := _drain(fd):
            job.exit_code = code[0]
        else:
            poll.unregister(fd)

    def interrupt(self, job: Job) -> bool:
        """Handle a timeout: interrupt a session once, so that it may keep its state; return False to give up."""
        if "time" in job.hits or not job.order.is_session:
            job.hits.add("time")
            return False
        job.hits.add("time")
        job.ends_at += INTERRUPT_S
        try:
            os.kill(job.process.pid, SIGINT)
        except OSError:  # it changed its user: the extended deadline ends it
            pass
        return True

    def note(self, ended: list[Ended], job: Job | None) -> None:
        """Record children that have ended."""
        for child in ended:
            if job and child.pid == job.process.pid:
                job.end(child)
            if self.session and child.pid == self.session.pid:
                self.end_session(is_closed=not job or job.process is not self.session)

    def end_session(self, is_closed: bool) -> None:
        """Forget the session, whose process is gone; `is_closed`: nobody will read its pipes any more."""
        if self.session and is_closed:
            self.session.close()
        self.session, self.is_state_lost = None, True

    # --- after it ---------------------------------------------------------------------------------------------------

    def settle(self, job: Job) -> None:
        """Kill everything that the order left running, except a session that finished its cell."""
        is_kept = job.order.is_session and job.exit_code is not None and not job.has_process_ended
        if is_kept:
            job.peak_bytes = number(f"/proc/{job.process.pid}/status", b"VmHWM:") << 10
        else:
            is_other = self.session is not None and job.process is not self.session
            self.note(self.tree.kill(spared=self.session.pid if self.session and is_other else 0), job)
        for fd in job.kinds:
            job.take(fd)
        job.has_begun = job.process.has_begun() or job.was_hindered()
        if not is_kept:
            job.process.close()
            if job.process is self.session:  # it never began
                self.end_session(is_closed=False)

    def read_gauges(self) -> list[int]:
        """Return the counters of the control groups: out-of-memory kills, failed forks."""
        return [number(path, key) for _, path, key in self.gauges]

    def check_gauges(self, job: Job) -> None:
        """Record hits of limits that only the kernel notices."""
        before, self.counts = self.counts, self.read_gauges()
        for (limit, _, _), old, new in zip(self.gauges, before, self.counts, strict=True):
            if new > old:
                job.hits.add(limit)
        try:
            room = os.statvfs(self.room)
        except OSError:
            return
        if not room.f_bavail or (room.f_files and not room.f_favail):
            job.hits.add("disk")

    def send_output(self, job: Job, nonce: bytes) -> None:
        """Send the output since the last call."""
        for kind, output in job.output.items():
            for at in range(0, len(output), PIECE_BYTES):
                _send(self.writes, kind, bytes(output[at : at + PIECE_BYTES]), nonce)
            output.clear()

    def answer(self, job: Job, nonce: bytes, cpu_s: float) -> None:
        """Send the rest of the output, then the result."""
        self.send_output(job, nonce)
        wall_us = int((time.monotonic() - job.started) * 1e6)
        code = -SIGKILL if job.exit_code is None else job.exit_code
        is_lost = job.order.is_session and self.is_state_lost
        fields = (code, ",".join(sorted(job.hits)), wall_us, int(cpu_s * 1e6), job.peak_bytes)
        _send(self.writes, wire.END, wire.pack(*fields, int(is_lost), int(job.has_begun)), nonce)
        if is_lost:
            self.is_state_lost = False


def main(reads: int, writes: int) -> None:
    """Serve the channel; when it closes, kill everything and exit."""
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    tree = Tree()
    try:
        _send(writes, wire.LOADED)
        kind, _, payload = receive(reads)
        if kind == wire.BOOT:
            cell = Cell(payload)
            if cell.rules:
                filter_calls(cell.rules)
            Warden(reads, writes, cell).serve()
    except (HostGoneError, BrokenPipeError, ConnectionError):
        pass
    except OSError as error:
        os.write(2, str(error).encode(errors="replace"))
    finally:
        tree.kill()
        os._exit(0)


def receive(fd: int) -> tuple[bytes, bytes, bytes]:
    """Read exactly one frame; the next one must not be in memory that a fork copies."""
    length, kind, nonce = wire.parse_header(_exactly(fd, wire.HEADER_BYTES))
    return kind, nonce, _exactly(fd, length)


def _exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(fd, min(count, PIECE_BYTES))
        if not part:
            raise HostGoneError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(fd: int, kind: bytes, payload: bytes = b"", nonce: bytes = wire.NO_NONCE) -> None:
    view = memoryview(wire.frame(kind, payload, nonce))
    while view:
        view = view[os.write(fd, view) :]


def _drain(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # empty, or corrupted by its writer
        return b""

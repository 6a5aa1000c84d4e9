"""The process of a sandbox on this machine: started with a socket as its channel, removed without leftovers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Sequence

from agentrl_sandbox import boot, cgroups, leases
from agentrl_sandbox.cgroups import Cage
from agentrl_sandbox.channel import Channel, SocketTransport
from agentrl_sandbox.errors import LostError, SandboxError
from agentrl_sandbox.leases import MARK, Lease
from agentrl_sandbox.local import sandbox
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.threads import in_thread
from agentrl_sandbox.types import Limits

REMOVAL_S = 5.0
RETRY_S, RETRIES = 0.005, 1000


class HostProcess:
    """The process, channel and cgroups of one lease: the `Vessel` of local sandboxes."""

    def __init__(self, lease: Lease, words: Sequence[str], cage: Cage | None, pass_fds: Sequence[int] = ()) -> None:
        self._lease, self._cage = lease, cage
        ours, theirs = socket.socketpair()
        self._stderr = os.memfd_create("stderr")
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                list(words),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                env={MARK: lease.id} | boot.SAME,
                cwd="/",
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            self.close_stderr()
            raise
        finally:
            theirs.close()
        self.channel = Channel(SocketTransport(ours))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def stderr(self) -> str:
        """Return what it wrote to stderr while starting, after ': ', or ''."""
        text = " ".join(os.pread(self._stderr, 4000, 0).decode(errors="replace").split())
        return f": {text}" if text else ""

    def close_stderr(self) -> None:
        """Release the stderr of a process that has started."""
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed it for lack of memory."""
        return self._cage is not None and self._cage.is_out_of_memory()

    async def remove(self) -> None:
        """Wait until the process ends after its channel was closed, else kill it; remove its cgroups and lease."""
        await self._end()
        left = list(self._cage.paths) if self._cage else []
        for _ in range(RETRIES):
            if not left or not (left := await in_thread(cgroups.try_remove, left)):  # blocks in the kernel
                break
            await asyncio.sleep(RETRY_S)
        if left:
            raise SandboxError(f"sandbox {self._lease.id}: processes in {', '.join(left)} (control group) do not end")
        leases.strike(self._lease)

    def abandon(self) -> None:
        """Remove it synchronously after a cancelled start."""
        self.close_stderr()
        self.channel.transport.shut()
        self.channel.transport.close()
        try:
            self._process.wait(REMOVAL_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait(REMOVAL_S)
        cgroups.remove(self._cage.paths if self._cage else ())
        leases.strike(self._lease)

    async def _end(self) -> None:
        """Wait for the process to exit; kill it, and every process with its mark, if it does not."""
        self.close_stderr()
        if await self._has_ended():
            self._process.wait()
            return
        try:
            self._kill()
            self._process.wait(REMOVAL_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"sandbox {self._lease.id} does not end: {error}") from error

    def _kill(self) -> None:
        self._process.kill()
        leases.kill_marked({self._lease.id}, REMOVAL_S)
        for path in self._cage.paths if self._cage else ():
            cgroups.kill(path)

    async def _has_ended(self) -> bool:
        """Return whether it exits by itself in time."""
        if self._process.poll() is not None:
            return True
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(descriptor, lambda: _settle(over))
        try:
            async with asyncio.timeout(REMOVAL_S):
                await over
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def raise_sandbox(
    lease: Lease,
    cage: Cage | None,
    limits: Limits,
    spawn: Callable[[], HostProcess],
    begin: Callable[[HostProcess], Awaitable[None]],
) -> OrderedSandbox:
    """Record the lease, spawn its process and boot it; LostError if that fails, after removing everything."""
    leases.write(lease)
    making, process = Making(cage, limits), None
    try:
        await making.made()
        process = spawn()
        await begin(process)
    except (LostError, OSError) as error:
        stderr = process.stderr() if process else ""
        _undo(lease, making, process)
        raise LostError(f"{lease.backend}: {error}{stderr}") from error
    except BaseException:
        _undo(lease, making, process)
        raise
    process.close_stderr()
    return sandbox(lease.id, process.channel, process, limits)


class Making:
    """Cancellable creation of a cage in a thread, because the kernel creates and removes one at a time."""

    def __init__(self, cage: Cage | None, limits: Limits) -> None:
        self._cage, self._limits = cage, limits
        self._lock, self._is_wanted = threading.Lock(), True

    async def made(self) -> None:
        """Create the cage, if there is one."""
        if self._cage:
            await in_thread(self._make, self._cage)

    def undo(self) -> None:
        """Remove what exists and prevent further creation."""
        with self._lock:
            self._is_wanted = False
        cgroups.remove(self._cage.paths if self._cage else ())

    def _make(self, cage: Cage) -> None:
        with self._lock:
            if self._is_wanted:
                cage.make(self._limits)


def _undo(lease: Lease, making: Making, process: HostProcess | None) -> None:
    if process:
        process.abandon()
    else:
        making.undo()
        leases.strike(lease)


async def add_to_cage(cage: Cage, pid: int) -> None:
    """Add a process in a thread, because the kernel takes milliseconds to move it."""
    await in_thread(cage.add, pid)

"""A process of this machine that holds up a sandbox: started with a socket as its channel, ended without a trace."""

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
    """The process of one lease, its channel, and its cgroups: the `Vessel` of what runs on this machine."""

    def __init__(self, lease: Lease, words: Sequence[str], cage: Cage | None, pass_fds: Sequence[int] = ()) -> None:
        self._lease, self._cage = lease, cage
        ours, theirs = socket.socketpair()
        self._complaints = os.memfd_create("complaints")
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                list(words),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._complaints,
                env={MARK: lease.id} | boot.SAME,
                cwd="/",
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            self.forget_complaints()
            raise
        finally:
            theirs.close()
        self.channel = Channel(SocketTransport(ours))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def complaints(self) -> str:
        """What it wrote to stderr while it started."""
        text = " ".join(os.pread(self._complaints, 4000, 0).decode(errors="replace").split())
        return f": {text}" if text else ""

    def forget_complaints(self) -> None:
        """It has started: its complaints are not needed any more."""
        if self._complaints >= 0:
            os.close(self._complaints)
            self._complaints = -1

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel ended it for its memory."""
        return self._cage is not None and self._cage.is_out_of_memory()

    async def remove(self) -> None:
        """Its channel is closed: wait for the end, force it where it does not come, remove cgroups and lease."""
        await self._end()
        left = list(self._cage.paths) if self._cage else []
        for _ in range(RETRIES):
            if not left or not (left := await in_thread(cgroups.try_remove, left)):  # it waits for the kernel
                break
            await asyncio.sleep(RETRY_S)
        if left:
            raise SandboxError(f"the control groups {', '.join(left)} of sandbox {self._lease.id} do not empty")
        leases.strike(self._lease)

    def abandon(self) -> None:
        """The same at once, for a start that was cancelled: nobody will wait any more."""
        self.forget_complaints()
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
        """Wait for the process; what does not end by itself, and whatever else carries its mark, is killed."""
        self.forget_complaints()
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
        """True when it ends by itself in time."""
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
    """Write the lease down, spawn its process, have it begin; LostError, and nothing is left, where that fails."""
    leases.write(lease)
    making, process = Making(cage, limits), None
    try:
        await making.made()
        process = spawn()
        await begin(process)
    except (LostError, OSError) as error:
        complaints = process.complaints() if process else ""
        _undo(lease, making, process)
        raise LostError(f"{lease.backend}: {error}{complaints}") from error
    except BaseException:
        _undo(lease, making, process)
        raise
    process.forget_complaints()
    return sandbox(lease.id, process.channel, process, limits)


class Making:
    """Makes a cage in a thread, for the kernel makes and removes one at a time; can be given up."""

    def __init__(self, cage: Cage | None, limits: Limits) -> None:
        self._cage, self._limits = cage, limits
        self._lock, self._is_wanted = threading.Lock(), True

    async def made(self) -> None:
        """Wait until it is made, if there is one to make."""
        if self._cage:
            await in_thread(self._make, self._cage)

    def undo(self) -> None:
        """Remove what is made, and make nothing more."""
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
    """Put a process in; in a thread, for the kernel takes milliseconds to move one."""
    await in_thread(cage.add, pid)

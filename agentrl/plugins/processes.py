"""Processes of authors' code, started so that nothing is left of one whose start is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import Any

LIMIT = 1 << 16
"""Bytes of a line that a stream of the process buffers, unless said otherwise."""
REAPED_S = 10.0
"""How long a busy machine may take to report the end of a killed process."""
RETRY_S = 0.1
"""How often a start is cancelled that the end of the loop has cancelled half way."""


class GroupProcess:
    """A process that leads a group of its own, which `kill` ends as a whole."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._transport, self._exited = transport, protocol.exited

    async def exited(self) -> int:
        """Return the exit code. What the process started may still run, and hold its pipes open."""
        await self._exited.wait()
        code = self.process.returncode
        assert code is not None, "it has exited"
        return code

    def kill(self) -> None:
        """Kill the process and what it started in its group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill the group, wait until the process is gone, and close its pipes, also if the wait is cancelled."""
        self.kill()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), REAPED_S)
        finally:
            self._transport.close()


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Notes the exit at once: `Process.wait` of Python 3.11 also waits until all pipes are closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def start_process(*command: str | os.PathLike[str], limit: int = LIMIT, **options: Any) -> GroupProcess:
    """Start a command as `asyncio.create_subprocess_exec` does, in a process group of its own. Raises OSError.

    If the start is cancelled, the group is killed.
    """
    exec_it = asyncio.get_running_loop().subprocess_exec
    starting = asyncio.ensure_future(exec_it(partial(_Protocol, limit), *command, start_new_session=True, **options))
    try:
        return GroupProcess(*await asyncio.shield(starting))
    except asyncio.CancelledError:
        # asyncio of Python 3.11 can wait for ever for a process whose start is cancelled half way.
        while not starting.done():
            if starting.cancelling():  # the loop ends, and cancelled every task
                starting.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({starting}, timeout=RETRY_S)
        if not starting.cancelled() and not starting.exception():
            await GroupProcess(*starting.result()).end()
        raise

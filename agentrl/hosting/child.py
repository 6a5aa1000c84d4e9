"""Child: the process of an environment, mostly in another interpreter, as its worker sees it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.hosting.channel import StreamChannel
from agentrl.hosting.guardian import SWEEP_S
from agentrl.hosting.interpreter import Process, check_interpreter, command, environment
from agentrl.hosting.process import END_S
from agentrl.plugins.processes import GroupProcess, start_process

MODULE = "agentrl.hosting.process"
TAIL_LINES, LINE_CHARS = 20, 300
READ_BYTES = 1 << 16
EXIT_S, LAST_S = 5.0, 1.0


class Child:
    """A running process with a channel to it. Its output goes to stderr; the last lines are kept for error messages."""

    def __init__(self, process: GroupProcess, channel: StreamChannel, python: Path | None) -> None:
        self.channel = channel
        self._process, self._python = process, python
        self._is_closing = False
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._reading = asyncio.create_task(self._read())
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, python: Path | None) -> Child:
        """Start the process, without `python` in this interpreter. Raises ConfigError if it cannot be executed."""
        if python is None:
            of = Process.of(None, MODULE)
        else:
            check_interpreter(python)
            of = Process(tuple(command(python, MODULE)), environment(python))
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await start_process(
                    *of.command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=dict(of.variables),
                )  # in a group of its own: Ctrl-C reaches the worker, which ends the process when it has ended
            return cls(process, await StreamChannel.over(ours), python)
        except OSError as error:
            ours.close()
            raise ConfigError(f"env.python {python} cannot be executed: {error.strerror}") from error
        except BaseException:
            ours.close()  # the process ends by itself
            raise

    async def ended(self) -> str:
        """Return how the process ended, with its last lines. It is killed if it still runs after a few seconds."""
        try:
            async with asyncio.timeout(END_S + EXIT_S if self._is_closing else EXIT_S):
                code = await self._process.exited()
        except TimeoutError:
            self.kill()
            code = await self._process.exited()
        await asyncio.wait({self._reading}, timeout=LAST_S)  # what it wrote last
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = "; its last lines:\n" + "\n".join(self._tail) if self._tail else ""
        return f"the environment's process{f' ({self._python})' if self._python else ''} {how}{lines}"

    async def close(self) -> None:
        """Let the process tear its episodes down, then end it and its children. Idempotent."""
        self._is_closing = True
        try:
            await self.channel.close()
            await self.ended()
        finally:
            self.kill()
            await asyncio.wait({self._watching}, timeout=SWEEP_S + EXIT_S)
            await self._process.end()
            tasks = {self._reading, self._watching}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        with suppress(ProcessLookupError):
            self._process.process.terminate()  # its guardian

    async def _watch(self) -> None:
        """End the channel after the process, even if processes that it started keep the other side open."""
        await self._process.exited()
        self._process.kill()  # the group is empty, unless the guardian was killed
        await asyncio.wait({self._reading}, timeout=LAST_S)
        self.channel.abort()

    async def _read(self) -> None:
        stdout = self._process.process.stdout
        assert stdout is not None, "it is a pipe"
        rest = ""
        while data := await stdout.read(READ_BYTES):
            text = data.decode(errors="replace")
            sys.stderr.write(text)
            *lines, rest = (rest + text).split("\n")
            self._tail.extend(line[:LINE_CHARS] for line in lines)
            rest = rest[-LINE_CHARS:]
        if rest:
            self._tail.append(rest)

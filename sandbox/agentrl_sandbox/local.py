"""A sandbox on this machine: orders go to its warden over a channel, whatever the backend."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Protocol

from agentrl_sandbox.answer import Answer
from agentrl_sandbox.channel import Channel
from agentrl_sandbox.errors import ClosedError, LostError, RefusedError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import ExecResult, Limit, Limits, OnOutput, Program, Python, Snapshot, Stream

GRACE_S = 5.0  # beyond the warden's own deadline, for an answer under load
FILES_S = 30.0  # for reading, writing, packing and unpacking files
STREAMS = {wire.OUT: Stream.STDOUT, wire.ERR: Stream.STDERR}


class Vessel(Protocol):
    """What a backend keeps of one sandbox beside its channel."""

    async def is_out_of_memory(self) -> bool:
        """Whether the kernel ended it for its memory."""

    async def remove(self) -> None:
        """Wait until its processes have ended, force them where they do not, and remove what is left of it."""


class LocalSandbox:
    """A `Sandbox` behind a channel; see the protocol for what the calls promise."""

    def __init__(self, lease_id: str, channel: Channel, vessel: Vessel, limits: Limits) -> None:
        self._id, self._channel, self._vessel, self._limits = lease_id, channel, vessel, limits
        self._turn, self._removal = asyncio.Lock(), asyncio.Lock()
        self._state = "open"

    @property
    def id(self) -> str:
        """Its lease."""
        return self._id

    async def exec(
        self,
        program: Program,
        stdin: bytes = b"",
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a program to its end."""
        is_python = isinstance(program, Python)
        verb, words = ("python", (program.source, *program.args)) if is_python else ("command", program.args)
        return await self._order(verb, words, stdin, limits or self._limits, on_output)

    async def run(self, source: str, limits: Limits | None = None, on_output: OnOutput | None = None) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter."""
        return await self._order("session", (source,), b"", limits or self._limits, on_output)

    async def read(self, path: str) -> bytes:
        """A regular file of the working folder."""
        return (await self._handle_files("read", path)).stdout

    async def write(self, path: str, content: bytes) -> None:
        """Make or replace a regular file of the working folder."""
        await self._handle_files("write", path, stdin=content)

    async def snapshot(self) -> Snapshot:
        """The working folder as an archive."""
        return Snapshot((await self._handle_files("snapshot")).stdout)

    async def restore(self, snapshot: Snapshot) -> None:
        """Unpack an archive into the working folder, inside the sandbox."""
        await self._handle_files("restore", stdin=snapshot.archive)

    def is_healthy(self) -> bool:
        """False when it is known to be dead."""
        return self._state == "open" and self._channel.transport.is_open()

    def kill(self) -> None:
        """End everything in it at once."""
        if self._state == "open":
            self._state = "killed"
            self._channel.transport.shut()

    async def close(self) -> None:
        """End everything in it and remove it."""
        self.kill()
        async with self._removal:
            if self._state != "closed":
                async with self._turn:  # whoever waits on the channel has seen it end
                    self._channel.transport.close()
                await self._vessel.remove()
                self._state = "closed"

    async def _handle_files(self, verb: str, *path: str, stdin: bytes = b"") -> ExecResult:
        """What the warden's own code does, with the program's rights; RefusedError says why it could not."""
        most = min(2 * self._limits.disk_bytes, wire.MOST_BYTES)
        limits = replace(self._limits, wall_s=FILES_S, cpu_s=FILES_S, output_bytes=most)
        result = await self._order(verb, path, stdin, limits, None)
        if result.exit_code or result.hits & {Limit.TIME, Limit.OUTPUT}:
            why = result.stderr.decode(errors="replace") or ", ".join(sorted(result.hits)) or "it was killed"
            raise RefusedError(f"cannot {' '.join((verb, *map(repr, path)))}: {why}")
        return result

    async def _order(
        self, verb: str, words: tuple[str, ...], stdin: bytes, limits: Limits, on_output: OnOutput | None
    ) -> ExecResult:
        """Send an order and wait for its result; whatever goes wrong on the way ends the sandbox."""
        is_streamed = int(on_output is not None)
        order = wire.pack(verb, limits.wall_s, limits.cpu_s, limits.output_bytes, is_streamed, stdin, *words)
        if len(order) > wire.MOST_BYTES:
            raise RefusedError(f"an order of {len(order)} bytes; a sandbox takes {wire.MOST_BYTES}")
        answer = Answer(limits.output_bytes, on_output)
        async with self._turn:
            if self._state != "open":
                raise ClosedError(f"sandbox {self._id} was {self._state}")
            try:
                async with asyncio.timeout(limits.wall_s + GRACE_S):
                    return await self._exchange(order, answer)
            except TimeoutError:
                self.kill()
                raise LostError(f"sandbox {self._id} did not answer {GRACE_S} s after its deadline") from None
            except LostError as error:
                self.kill()
                if await self._vessel.is_out_of_memory():
                    return answer.cut_off(Limit.MEMORY)
                raise LostError(f"sandbox {self._id}: {error}") from error
            except BaseException:
                self.kill()
                raise

    async def _exchange(self, order: bytes, answer: Answer) -> ExecResult:
        nonce = os.urandom(wire.NONCE_BYTES)
        await self._channel.send(wire.frame(wire.ORDER, order), wire.frame(wire.NONCE, nonce=nonce))
        while True:
            kind, payload = await self._channel.receive(nonce)
            if kind in STREAMS:
                answer.add(STREAMS[kind], payload)
            elif kind == wire.END:
                return answer.result(payload)
            else:
                raise LostError(f"it answered with a frame of kind {kind!r}")

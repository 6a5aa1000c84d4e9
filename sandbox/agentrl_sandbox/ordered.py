"""The sandbox of every backend: each call becomes an order over a link, to a warden here or on a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from agentrl_sandbox.answer import Answer
from agentrl_sandbox.errors import ClosedError, LostError, RefusedError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import Command, ExecResult, Limit, Limits, OnOutput, Program, Python, Snapshot

GRACE_S = 5.0  # beyond the warden's own deadline, for a loaded machine
FILES_S = 30.0  # for reading, writing, packing and unpacking files


class Link(Protocol):
    """Connection to one sandbox."""

    async def carry(self, order: bytes, answer: Answer) -> ExecResult:
        """Send an order and collect its answer; LostError if the sandbox is gone."""

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed the sandbox for lack of memory."""

    def is_open(self) -> bool:
        """Return False if the sandbox is known to be gone."""

    def shut(self) -> None:
        """End the sandbox, which wakes pending calls; idempotent."""

    async def remove(self) -> None:
        """Remove what is left of the sandbox once no call is pending."""


class OrderedSandbox:
    """A `Sandbox` behind a link, which runs its calls one at a time."""

    def __init__(self, lease_id: str, link: Link, limits: Limits) -> None:
        self._id, self._link, self._limits = lease_id, link, limits
        self._turn, self._removal = asyncio.Lock(), asyncio.Lock()
        self._state = "open"

    @property
    def id(self) -> str:
        """The id of its lease."""
        return self._id

    async def exec(
        self,
        program: Program,
        stdin: bytes = b"",
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        is_clean: bool = False,
    ) -> ExecResult:
        """Run a program to its end."""
        if isinstance(program, Python):
            words: tuple[str | bytes, ...] = ("python", program.source, *program.args)
        elif isinstance(program, Command):
            words = ("command", *program.args)
        else:
            raise TypeError(f"exec({program!r:.40}): pass Python(source), Command(words) or shell(script)")
        words = ("clean", *words) if is_clean else words
        return await self.order(words, stdin, limits or self._limits, on_output)

    async def run(self, source: str, limits: Limits | None = None, on_output: OnOutput | None = None) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter."""
        return await self.order(("session", source), b"", limits or self._limits, on_output)

    async def read(self, path: str, most: int | None = None) -> bytes:
        """Read a regular file of the working folder."""
        return (await self._handle_files("read", path, most=most)).stdout

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a regular file of the working folder."""
        await self._handle_files("write", path, stdin=content)

    async def snapshot(self) -> Snapshot:
        """Return the working folder as an archive."""
        return Snapshot((await self._handle_files("snapshot")).stdout)

    async def restore(self, snapshot: Snapshot) -> None:
        """Unpack an archive into the working folder, inside the sandbox."""
        await self._handle_files("restore", stdin=snapshot.archive)

    def is_healthy(self) -> bool:
        """Return False if it is known to be dead."""
        return self._state == "open" and self._link.is_open()

    def kill(self) -> None:
        """Kill everything in it at once."""
        if self._state == "open":
            self._state = "killed"
            self._link.shut()

    async def close(self) -> None:
        """Kill everything in it and remove it."""
        self.kill()
        async with self._removal:
            if self._state != "closed":
                async with self._turn:  # pending calls on the link have ended
                    await self._link.remove()
                self._state = "closed"

    async def _handle_files(self, verb: str, *path: str, stdin: bytes = b"", most: int | None = None) -> ExecResult:
        """Have the warden's code handle files with the program's rights; RefusedError if it cannot."""
        most = min(2 * self._limits.disk_bytes, wire.MAX_BYTES) if most is None else most
        limits = replace(self._limits, wall_s=FILES_S, cpu_s=FILES_S, output_bytes=most)
        result = await self.order((verb, *path), stdin, limits, None)
        if result.exit_code or result.hits & {Limit.TIME, Limit.OUTPUT}:
            too_long = f"it has more than {most} bytes" if Limit.OUTPUT in result.hits else ""
            why = (
                too_long or result.stderr.decode(errors="replace") or ", ".join(sorted(result.hits)) or "it was killed"
            )
            raise RefusedError(f"cannot {' '.join((verb, *map(repr, path)))}: {why}")
        return result

    async def order(
        self, words: tuple[str | bytes, ...], stdin: bytes, limits: Limits, on_output: OnOutput | None
    ) -> ExecResult:
        """Send an order (a verb and its arguments) and wait for the result; an error on the way ends the sandbox."""
        is_streamed = int(on_output is not None)
        bounds = (limits.wall_s, limits.cpu_s, limits.output_bytes, is_streamed)
        order = wire.pack(words[0], *bounds, stdin, *words[1:])
        if len(order) > wire.MAX_BYTES:
            raise RefusedError(f"the order has {len(order)} bytes; a sandbox accepts at most {wire.MAX_BYTES}")
        answer = Answer(limits.output_bytes, on_output)
        async with self._turn:
            if self._state != "open":
                raise ClosedError(f"sandbox {self._id} is {self._state}")
            try:
                async with asyncio.timeout(limits.wall_s + GRACE_S):
                    return await self._link.carry(order, answer)
            except TimeoutError:
                self.kill()
                raise LostError(f"sandbox {self._id} did not answer {GRACE_S} s after its deadline") from None
            except LostError as error:
                self.kill()
                if await self._link.is_out_of_memory():
                    return answer.cut_off(Limit.MEMORY)
                raise LostError(f"sandbox {self._id}: {error}") from error
            except BaseException:
                self.kill()
                raise

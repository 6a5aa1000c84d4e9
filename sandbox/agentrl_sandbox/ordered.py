"""The sandbox of every backend: each call is an order that goes over a link, to a warden here or on a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from agentrl_sandbox.answer import Answer
from agentrl_sandbox.errors import ClosedError, LostError, RefusedError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import Command, ExecResult, Limit, Limits, OnOutput, Program, Python, Snapshot

GRACE_S = 5.0  # beyond the warden's own deadline, for an answer under load
FILES_S = 30.0  # for reading, writing, packing and unpacking files


class Link(Protocol):
    """The way to one sandbox, and the hold on it."""

    async def carry(self, order: bytes, answer: Answer) -> ExecResult:
        """Send an order, gather its answer; LostError when the sandbox is gone."""

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel ended the sandbox for its memory."""

    def is_open(self) -> bool:
        """False when the sandbox is known to be gone."""

    def shut(self) -> None:
        """End the sandbox and whoever waits for it; safe to call twice."""

    async def remove(self) -> None:
        """Nobody waits any more: remove what is left of the sandbox."""


class OrderedSandbox:
    """A `Sandbox` behind a link; see the protocol for what the calls promise."""

    def __init__(self, lease_id: str, link: Link, limits: Limits) -> None:
        self._id, self._link, self._limits = lease_id, link, limits
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
        is_clean: bool = False,
    ) -> ExecResult:
        """Run a program to its end."""
        if isinstance(program, Python):
            words: tuple[str | bytes, ...] = ("python", program.source, *program.args)
        elif isinstance(program, Command):
            words = ("command", *program.args)
        else:
            raise TypeError(f"exec({program!r:.40}): give Python(source), Command(words) or shell(script)")
        words = ("clean", *words) if is_clean else words
        return await self.order(words, stdin, limits or self._limits, on_output)

    async def run(self, source: str, limits: Limits | None = None, on_output: OnOutput | None = None) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter."""
        return await self.order(("session", source), b"", limits or self._limits, on_output)

    async def read(self, path: str, most: int | None = None) -> bytes:
        """Return a regular file of the working folder."""
        return (await self._handle_files("read", path, most=most)).stdout

    async def write(self, path: str, content: bytes) -> None:
        """Make or replace a regular file of the working folder."""
        await self._handle_files("write", path, stdin=content)

    async def snapshot(self) -> Snapshot:
        """Return the working folder as an archive."""
        return Snapshot((await self._handle_files("snapshot")).stdout)

    async def restore(self, snapshot: Snapshot) -> None:
        """Unpack an archive into the working folder, inside the sandbox."""
        await self._handle_files("restore", stdin=snapshot.archive)

    def is_healthy(self) -> bool:
        """False when it is known to be dead."""
        return self._state == "open" and self._link.is_open()

    def kill(self) -> None:
        """End everything in it at once."""
        if self._state == "open":
            self._state = "killed"
            self._link.shut()

    async def close(self) -> None:
        """End everything in it and remove it."""
        self.kill()
        async with self._removal:
            if self._state != "closed":
                async with self._turn:  # whoever waits on the link has seen it end
                    await self._link.remove()
                self._state = "closed"

    async def _handle_files(self, verb: str, *path: str, stdin: bytes = b"", most: int | None = None) -> ExecResult:
        """What the warden's own code does, with the program's rights; RefusedError says why it could not."""
        most = min(2 * self._limits.disk_bytes, wire.MOST_BYTES) if most is None else most
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
        """Give an order (a verb, its arguments), wait for the result; what goes wrong on the way ends the sandbox."""
        is_streamed = int(on_output is not None)
        bounds = (limits.wall_s, limits.cpu_s, limits.output_bytes, is_streamed)
        order = wire.pack(words[0], *bounds, stdin, *words[1:])
        if len(order) > wire.MOST_BYTES:
            raise RefusedError(f"an order of {len(order)} bytes; a sandbox takes {wire.MOST_BYTES}")
        answer = Answer(limits.output_bytes, on_output)
        async with self._turn:
            if self._state != "open":
                raise ClosedError(f"sandbox {self._id} was {self._state}")
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

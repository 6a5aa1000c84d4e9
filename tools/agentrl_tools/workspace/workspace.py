"""The sandbox of one episode, and the tools that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from agentrl.env import BadCallError, Tool
from agentrl.env.tools import bound_tools
from agentrl.errors import ConfigError, UnknownNameError
from agentrl_tools.workspace import pools
from agentrl_tools.workspace.shown import shown
from agentrl_tools.workspace.toolsets import Files, PythonSession, Shell

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Limits, LostError, Pool, Sandbox

KINDS: dict[str, Callable[[Workspace], object]] = {"python": PythonSession, "shell": Shell, "files": Files}
MAX_CHARACTERS = 8_000
WAIT_S = 120.0
"""How long a call waits for a sandbox while all of them are taken."""

REPLAY_S, REPLAY_WAIT_S = 30.0, 10.0
"""How long the calls of an episode may take once more, to see whether they break a second sandbox; and its wait."""

BROKEN = "this call broke the sandbox, and would again: all variables and files are lost"
T = TypeVar("T")


class Workspace(AbstractAsyncContextManager[list[Tool]]):
    """Offer `python`, `shell` and `files`, as many of them as are named, in one sandbox of the episode's own.

    It is taken at the first call and given back with the episode; what ran in it is killed. What the model's code does
    wrong is told to the model, and so is that its calls break sandboxes, when they break a second one too
    (`agentrl_sandbox.retry`); any other that fails is the infrastructure's fault. `backend` as in
    `agentrl_sandbox.choose`; by default a call has 10 s. `max_characters` bounds what a call returns;
    `packages` are installed distributions that its Python can import.
    """

    def __init__(
        self,
        *kinds: str,
        backend: str = "auto",
        limits: Limits | None = None,
        max_characters: int = MAX_CHARACTERS,
        packages: Sequence[str] = (),
    ) -> None:
        from agentrl_sandbox import Limits

        for kind in kinds:
            if kind not in KINDS:
                raise UnknownNameError("tool of a Workspace", kind, KINDS)
        if not kinds or len(set(kinds)) < len(kinds):
            raise ConfigError(f"Workspace: name each of {', '.join(KINDS)} at most once, and one at least")
        self.packages = tuple(packages) if not isinstance(packages, str) else (packages,)
        pools.backend(backend, self.packages)
        self.kinds, self.backend, self.max_characters = kinds, backend, max_characters
        self.limits = limits or Limits(cpu_s=20.0)  # above the wall clock's: time out first, and keep the variables
        self._pool: Pool | None = None
        self._sandbox: Sandbox | None = None
        self._done: list[Callable[[Sandbox], Awaitable[object]]] = []  # in that sandbox, in order
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> list[Tool]:
        """The tools; nothing is started."""
        toolsets = [KINDS[kind](self) for kind in self.kinds]
        return [self._told(tool) for toolset in toolsets for tool in bound_tools(toolset)]

    async def __aexit__(self, *_: object) -> None:
        """Kill what runs, and give the sandbox back. Idempotent."""
        self._release()

    async def run(self, order: Callable[[Sandbox], Awaitable[ExecResult]], is_session: bool = False) -> str:
        """What the model reads of a run in the sandbox."""
        async with self._turn:
            result = await self._do(order)
            is_lost = bool(result.hits) and not self._is_healthy()  # the program took its sandbox along
            if is_lost:
                self._release()
        return shown(result, self.limits, self.max_characters, is_session, is_lost)

    async def read(self, path: str) -> bytes:
        """A file of the working folder, of no more bytes than a run may write."""
        async with self._turn:
            return await self._do(lambda sandbox: sandbox.read(path, self.limits.output_bytes))

    async def write(self, path: str, content: bytes) -> None:
        """Make or replace a file of the working folder."""
        async with self._turn:
            await self._do(lambda sandbox: sandbox.write(path, content))

    async def _do(self, action: Callable[[Sandbox], Awaitable[T]]) -> T:
        """Do it in the episode's sandbox. BadCallError for what is refused, and for what breaks two sandboxes."""
        from agentrl_sandbox import LostError, RefusedError

        sandbox = await self._taken()
        self._done.append(action)
        try:
            return await action(sandbox)
        except RefusedError as error:
            raise BadCallError(str(error)) from error
        except LostError as lost:
            if sandbox is not self._sandbox:  # given back meanwhile
                raise
            await self._judge(lost)

    async def _judge(self, lost: LostError) -> NoReturn:
        """Play the calls so far in a second sandbox: BadCallError when they break it too, else `lost`."""
        from agentrl_sandbox import BrokenError, RefusedError, retry

        done, pool = tuple(self._done), self._pool
        self._release()

        async def replay(sandbox: Sandbox) -> None:
            for action in done:
                with suppress(RefusedError):
                    await action(sandbox)

        try:
            if pool is not None:
                await retry(pool, replay, REPLAY_S, REPLAY_WAIT_S)
        except BrokenError as broken:
            raise BadCallError(BROKEN) from broken
        raise lost

    def _is_healthy(self) -> bool:
        return self._sandbox is not None and self._sandbox.is_healthy()

    def _told(self, tool: Tool) -> Tool:
        """The tool, whose silence is the sandbox's fault; its description names the packages, where it runs code."""
        if not self.packages or tool.spec["name"] not in ("python", "shell"):
            return replace(tool, silence="infra")
        description = f"{tool.spec['description']} Python can import {', '.join(self.packages)}."
        return replace(tool, silence="infra", spec={**tool.spec, "description": description})

    async def _taken(self) -> Sandbox:
        if self._sandbox is None:
            self._pool = await pools.pool(self.backend, self.limits, self.packages)
            self._sandbox = await self._pool.take(WAIT_S)
        return self._sandbox

    def _release(self) -> None:
        sandbox, self._sandbox, self._done = self._sandbox, None, []
        if sandbox is not None and self._pool is not None:
            self._pool.drop(sandbox)

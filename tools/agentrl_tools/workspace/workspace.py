"""The sandbox of one episode, and the tools that share it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from agentrl.env import BadCallError, Tool, waiting
from agentrl.env.tools import bound_tools
from agentrl.errors import ConfigError, UnknownNameError
from agentrl_tools.workspace import pools
from agentrl_tools.workspace.shown import shown
from agentrl_tools.workspace.toolsets import Files, PythonSession, Shell

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Limits, Pool, Sandbox

KINDS: dict[str, Callable[[Workspace], object]] = {"python": PythonSession, "shell": Shell, "files": Files}
MAX_CHARACTERS = 8_000
WAIT_S = 120.0
"""How long a call waits for a sandbox while all of them are taken."""

REPLAY_S = 90.0
"""How long the calls of an episode may take once more, to see whether they break a second sandbox."""

LEEWAY, SPARE_S = 2, 5.0
"""Calls that ended may take twice as long once more, and five seconds; one that did not has what it had."""

WAITED = 0.1
"""The share of a call's deadline that may go by before it begins, for its end to be its own doing."""

BROKEN = "this call broke the sandbox, or never ends, and would again: all variables and files are lost"
T = TypeVar("T")
Action = Callable[["Sandbox"], Awaitable[object]]


class Workspace(AbstractAsyncContextManager[list[Tool]]):
    """Offer `python`, `shell` and `files`, as many of them as are named, in one sandbox of the episode's own.

    It is taken at the first call and given back with the episode; what ran in it is killed. What the model's code does
    wrong is told to the model, and so is that its calls break sandboxes or never end, when they do so in a second one
    too (`agentrl_sandbox.retry`); any other sandbox that fails is the infrastructure's fault. `backend` as in
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
        self._done: list[Action] = []  # in that sandbox, in order
        self._took_s = 0.0  # all of them together
        self._suspected: tuple[tuple[Action, ...], float, float] | None = None
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
        """Do it in the episode's sandbox; BadCallError for what is refused. `_blame` judges what breaks the sandbox."""
        from agentrl_sandbox import LostError, RefusedError

        called = time.monotonic()
        sandbox = await self._taken()
        began, self._suspected = time.monotonic(), None
        self._done.append(action)
        try:
            return await action(sandbox)
        except RefusedError as error:
            raise BadCallError(str(error)) from error
        except LostError:
            if sandbox is self._sandbox:  # not given back meanwhile
                self._suspect(REPLAY_S, REPLAY_S)
            raise
        except asyncio.CancelledError:
            ran_s = time.monotonic() - began
            if sandbox is self._sandbox and began - called < WAITED * ran_s:
                self._suspect(LEEWAY * self._took_s + SPARE_S, ran_s)
            raise
        finally:
            if sandbox is self._sandbox:
                self._took_s += time.monotonic() - began

    def _suspect(self, before_s: float, last_s: float) -> None:
        """Give the sandbox back, and keep what was done there, and how long it may take again."""
        self._suspected = tuple(self._done), before_s, last_s
        self._release()

    async def _blame(self, **_: object) -> str:
        """What to tell the model where its calls so far break a second sandbox too, or do not end there; else ""."""
        from agentrl_sandbox import BrokenError, RefusedError, retry

        if self._suspected is None or self._pool is None:
            return ""
        ((*before, last), before_s, last_s), self._suspected = self._suspected, None

        async def replay(sandbox: Sandbox) -> None:
            with suppress(RefusedError):
                async with asyncio.timeout(before_s):
                    for action in before:
                        with suppress(RefusedError):
                            await action(sandbox)
                async with asyncio.timeout(last_s):
                    await last(sandbox)

        try:
            await retry(self._pool, replay, REPLAY_S)
        except BrokenError:
            return BROKEN
        return ""

    def _is_healthy(self) -> bool:
        return self._sandbox is not None and self._sandbox.is_healthy()

    def _told(self, tool: Tool) -> Tool:
        """The tool, whose silence is the sandbox's fault; its description names the packages, where it runs code."""
        if not self.packages or tool.spec["name"] not in ("python", "shell"):
            return replace(tool, silence="infra", blame=self._blame)
        description = f"{tool.spec['description']} Python can import {', '.join(self.packages)}."
        return replace(tool, silence="infra", blame=self._blame, spec={**tool.spec, "description": description})

    async def _taken(self) -> Sandbox:
        if self._sandbox is None:
            with waiting():
                self._pool = await pools.pool(self.backend, self.limits, self.packages)
                self._sandbox = await self._pool.take(WAIT_S)
        return self._sandbox

    def _release(self) -> None:
        sandbox, self._sandbox, self._done, self._took_s = self._sandbox, None, [], 0.0
        if sandbox is not None and self._pool is not None:
            self._pool.drop(sandbox)

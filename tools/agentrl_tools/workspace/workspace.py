"""The sandbox of one episode, and the tools that share it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from agentrl.env import BadCallError, Tool, bound_tools, waiting
from agentrl.errors import ConfigError, UnknownNameError
from agentrl_tools.workspace import pools
from agentrl_tools.workspace.shown import shown
from agentrl_tools.workspace.toolsets import Files, PythonSession, Shell

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Limits, Pool, Sandbox

KINDS: dict[str, Callable[[Workspace], object]] = {"python": PythonSession, "shell": Shell, "files": Files}
MAX_CHARACTERS = 8_000
WAIT_S = 120.0
"""How long a call waits for a sandbox while all are in use."""

REPLAY_S = 90.0
"""Time limit for replaying the calls of an episode in a second sandbox."""

SLOWDOWN, SPARE_S = 2, 5.0
"""In a replay, finished calls may take SLOWDOWN times as long plus SPARE_S; the unfinished one as long as before."""

WAITED = 0.1
"""A call is suspected only if it waited for its sandbox for less than this share of the time that it ran."""

BROKEN = "this call broke the sandbox or never ends, also when repeated: all variables and files are lost"
T = TypeVar("T")
Action = Callable[["Sandbox"], Awaitable[object]]


class Workspace(AbstractAsyncContextManager[list[Tool]]):
    """Toolset with any of `python`, `shell` and `files`, which share one sandbox per episode.

    The sandbox is taken at the first call and returned when the episode ends, which kills its processes. Errors of the
    model's code go to the model. If calls break the sandbox or never end, they are replayed in a second one
    (`agentrl_sandbox.retry`): the failure is the model's if it happens again, else the infrastructure's. `backend` is
    as in `agentrl_sandbox.choose`; by default a call has 10 s. `max_characters` bounds the result of a call;
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
            raise ConfigError(f"Workspace: name at least one of {', '.join(KINDS)}, each at most once")
        self.packages = tuple(packages) if not isinstance(packages, str) else (packages,)
        pools.backend(backend, self.packages)
        self.kinds, self.backend, self.max_characters = kinds, backend, max_characters
        self.limits = limits or Limits(cpu_s=20.0)  # more than wall_s: a wall-clock timeout keeps the variables
        self._pool: Pool | None = None
        self._sandbox: Sandbox | None = None
        self._done: list[Action] = []  # actions in this sandbox, in order
        self._took_s = 0.0  # their total duration
        self._suspected: tuple[tuple[Action, ...], float, float] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> list[Tool]:
        """Return the tools without starting anything."""
        toolsets = [KINDS[kind](self) for kind in self.kinds]
        return [self._configured(tool) for toolset in toolsets for tool in bound_tools(toolset)]

    async def __aexit__(self, *_: object) -> None:
        """Kill running processes and give the sandbox back. Idempotent."""
        self._release()

    async def run(self, order: Callable[[Sandbox], Awaitable[ExecResult]], is_session: bool = False) -> str:
        """Run something in the sandbox and return the text that the model reads."""
        async with self._turn:
            result = await self._do(order)
            is_lost = bool(result.hits) and not self._is_healthy()  # the program broke its sandbox
            if is_lost:
                self._release()
        return shown(result, self.limits, self.max_characters, is_session, is_lost)

    async def read(self, path: str) -> bytes:
        """Read a file of the working folder that is not larger than the output limit."""
        async with self._turn:
            return await self._do(lambda sandbox: sandbox.read(path, self.limits.output_bytes))

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file of the working folder."""
        async with self._turn:
            await self._do(lambda sandbox: sandbox.write(path, content))

    async def _do(self, action: Callable[[Sandbox], Awaitable[T]]) -> T:
        """Perform an action in the episode's sandbox; BadCallError if refused. `_blame` attributes broken sandboxes."""
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
            if sandbox is self._sandbox:  # not given back in the meantime
                self._suspect(REPLAY_S, REPLAY_S)
            raise
        except asyncio.CancelledError:
            ran_s = time.monotonic() - began
            if sandbox is self._sandbox and began - called < WAITED * ran_s:
                self._suspect(SLOWDOWN * self._took_s + SPARE_S, ran_s)
            raise
        finally:
            if sandbox is self._sandbox:
                self._took_s += time.monotonic() - began

    def _suspect(self, before_s: float, last_s: float) -> None:
        """Give the sandbox back and keep its actions, with time limits, for a replay."""
        self._suspected = tuple(self._done), before_s, last_s
        self._release()

    async def _blame(self, **_: object) -> str:
        """Replay the calls in a second sandbox; return the model's error if they break it or never end, else ""."""
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

    def _configured(self, tool: Tool) -> Tool:
        """Return the tool with timeouts attributed to infra; the descriptions of python and shell name the packages."""
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

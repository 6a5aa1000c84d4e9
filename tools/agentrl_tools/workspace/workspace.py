"""The sandbox of one episode, and the tools that share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from agentrl.env import BadCallError, Tool
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


class Workspace(AbstractAsyncContextManager[list[Tool]]):
    """Offer `python`, `shell` and `files`, as many of them as are named, in one sandbox of the episode's own.

    It is taken at the first call and given back with the episode; what ran in it is killed. What the model's code does
    wrong is told to the model; a sandbox that fails is the infrastructure's fault. `backend` as in
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

    async def __aenter__(self) -> list[Tool]:
        """The tools; nothing is started."""
        toolsets = [KINDS[kind](self) for kind in self.kinds]
        return [self._told(tool) for toolset in toolsets for tool in bound_tools(toolset)]

    async def __aexit__(self, *_: object) -> None:
        """Kill what runs, and give the sandbox back. Idempotent."""
        self._release()

    async def run(self, order: Callable[[Sandbox], Awaitable[ExecResult]], is_session: bool = False) -> str:
        """What the model reads of a run in the sandbox."""
        with told():
            sandbox = await self._taken()
            result = await order(sandbox)
        is_lost = bool(result.hits) and not sandbox.is_healthy()  # the program took its sandbox along
        if is_lost:
            self._release()
        return shown(result, self.limits, self.max_characters, is_session, is_lost)

    async def read(self, path: str) -> bytes:
        """A file of the working folder, of no more bytes than a run may write."""
        with told():
            return await (await self._taken()).read(path, self.limits.output_bytes)

    async def write(self, path: str, content: bytes) -> None:
        """Make or replace a file of the working folder."""
        with told():
            await (await self._taken()).write(path, content)

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
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None and self._pool is not None:
            self._pool.drop(sandbox)


@contextmanager
def told() -> Iterator[None]:
    """What a sandbox refuses is the model's fault; everything else flies."""
    from agentrl_sandbox import RefusedError

    try:
        yield
    except RefusedError as error:
        raise BadCallError(str(error)) from error

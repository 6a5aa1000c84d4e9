"""Toolsets of a workspace. A tool takes the episode's sandbox when it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from agentrl.env import BadCallError, tool
from agentrl_tools.workspace.shown import cut

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Sandbox

LISTING = """
import os, sys
try:
    entries = sorted(os.scandir(sys.argv[1]), key=lambda entry: entry.name)
except OSError as error:
    sys.exit(str(error))
for entry in entries:
    is_folder = entry.is_dir(follow_symlinks=False)
    print(f"{entry.name}/" if is_folder else f"{entry.name} ({entry.stat(follow_symlinks=False).st_size} bytes)")
if not entries:
    print("[the folder is empty]")
"""


class EpisodeSandbox(Protocol):
    """The sandbox that the tools of an episode share."""

    max_characters: int

    async def run(self, order: Callable[[Sandbox], Awaitable[ExecResult]], is_session: bool = False) -> str:
        """Run something in the sandbox and return the text that the model reads."""

    async def read(self, path: str) -> bytes:
        """Read a file of the working folder."""

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file of the working folder."""


class PythonSession:
    """Toolset with `python`."""

    def __init__(self, workspace: EpisodeSandbox) -> None:
        self._workspace = workspace

    @tool
    async def python(self, code: str) -> str:
        """Run Python code; returns what it prints and the value of the last expression.

        Args:
            code: any Python; variables and imports are kept for the next call
        """
        return await self._workspace.run(lambda sandbox: sandbox.run(code), is_session=True)


class Shell:
    """Toolset with `shell`."""

    def __init__(self, workspace: EpisodeSandbox) -> None:
        self._workspace = workspace

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command in the working folder; returns what it prints, and its exit code unless that is 0.

        Args:
            command: a script for sh; files are kept for the next call, variables and processes are not
        """
        from agentrl_sandbox import shell

        return await self._workspace.run(lambda sandbox: sandbox.exec(shell(command)))


class Files:
    """Toolset with `read_file`, `write_file`, `edit_file` and `list_files`."""

    def __init__(self, workspace: EpisodeSandbox) -> None:
        self._workspace = workspace

    @tool
    async def read_file(self, path: str, first: int = 1, last: int = 0) -> str:
        """Read a text file of the working folder.

        Args:
            path: relative to the working folder
            first: the first line to read, counted from 1
            last: the last line to read; 0 for the last line of the file
        """
        lines = (await self._workspace.read(path)).decode(errors="replace").splitlines(keepends=True)
        text = "".join(lines[max(first, 1) - 1 : last if last > 0 else None])
        return cut(text, self._workspace.max_characters) or (
            f"[the file has {len(lines)} lines]" if lines else "[the file is empty]"
        )

    @tool
    async def write_file(self, path: str, text: str) -> str:
        """Create or replace a text file of the working folder.

        Args:
            path: relative to the working folder; missing parent folders are created
            text: the whole content of the file
        """
        content = text.encode(errors="replace")
        await self._workspace.write(path, content)
        return f"{len(content)} bytes written"

    @tool
    async def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a passage of a text file of the working folder.

        Args:
            path: relative to the working folder
            old: the passage exactly as in the file, where it must occur once
            new: the text that replaces it
        """
        content, passage = await self._workspace.read(path), old.encode(errors="replace")
        if not passage or (count := content.count(passage)) != 1:
            raise BadCallError(
                f"`old` occurs {count} times in {path}; it must occur once" if passage else "`old` is empty"
            )
        await self._workspace.write(path, content.replace(passage, new.encode(errors="replace")))
        return "edited"

    @tool
    async def list_files(self, path: str = ".") -> str:
        """List a folder.

        Args:
            path: relative to the working folder
        """
        from agentrl_sandbox import Python

        return await self._workspace.run(lambda sandbox: sandbox.exec(Python(LISTING, (path,))))

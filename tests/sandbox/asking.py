"""What tests ask of sandboxes: programs that are run, what they say, and whether the sandbox still serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentrl_sandbox import Backend, ExecResult, Python, Sandbox

from tests.sandbox.conftest import TIGHT


@asynccontextmanager
async def another(made: Backend) -> AsyncIterator[Sandbox]:
    """A sandbox beside the one under test."""
    other = await made.create(TIGHT)
    try:
        yield other
    finally:
        await other.close()


async def python(sandbox: Sandbox, source: str, *args: str) -> ExecResult:
    return await sandbox.exec(Python(source, args))


async def printed(sandbox: Sandbox, source: str, *args: str) -> str:
    """What a program prints that must run to its end."""
    result = await python(sandbox, source, *args)
    assert result.is_ok, result
    return result.stdout.decode().strip()


async def processes(sandbox: Sandbox) -> int:
    """How many processes there are beside the warden and the one that counts."""
    return int(await printed(sandbox, "import os; print(sum(name.isdigit() for name in os.listdir('/proc')) - 2)"))


async def assert_serves(sandbox: Sandbox) -> None:
    """It still does what it is for, and nothing is left of what ran before."""
    assert await processes(sandbox) == 0


def attempt(statement: str) -> str:
    """A program that prints the error of a statement, or `done`."""
    body = f"    {statement}\n    print('done')\n"
    return f"import errno, os, socket\ntry:\n{body}except OSError as error:\n    print(errno.errorcode[error.errno])\n"


def has_internet(walls: Backend) -> bool:
    """Whether programs have TCP and UDP among themselves: where a control group counts the buffers."""
    return walls.name == "bubblewrap" or "v2" in walls.describe() or "runsc" in walls.describe()

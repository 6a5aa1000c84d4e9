"""Attribution of a broken sandbox.

The program is at fault if the same actions break a second, fresh sandbox while a control sandbox of the same backend
works before and after. Otherwise the infrastructure is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentrl_sandbox.errors import BrokenError, ClosedError, LostError, RefusedError
from agentrl_sandbox.pool import WAIT_S, Pool
from agentrl_sandbox.types import Python, Sandbox

T = TypeVar("T")
PROBE = "print(6 * 7)"
KNOWN = b"42\n"


async def retry(pool: Pool, actions: Callable[[Sandbox], Awaitable[T]], within_s: float, wait_s: float = WAIT_S) -> T:
    """Repeat in a second sandbox what was done in one that broke, and return the result.

    Raises BrokenError (fault "program") if that breaks too or takes longer than `within_s` while a control sandbox
    works. Any other SandboxError is the infrastructure's, for example no sandbox within `wait_s`.
    """
    async with pool.lease(wait_s) as control, pool.lease(wait_s) as second:
        await probe(control)
        try:
            async with asyncio.timeout(within_s):
                return await actions(second)
        except (LostError, ClosedError, TimeoutError) as error:
            await probe(control)
            raise BrokenError(f"the same actions broke two sandboxes while a third one works: {error}") from error


async def probe(sandbox: Sandbox) -> None:
    """Run known programs and files; SandboxError (fault "infra") if a result is wrong."""
    try:
        await sandbox.write("probe", KNOWN)
        answers = [(await sandbox.exec(Python(PROBE))).stdout, (await sandbox.run(PROBE)).stdout]
        answers.append(await sandbox.read("probe"))
    except RefusedError as error:
        raise LostError(f"a sandbox rejects a valid file: {error}") from error
    if answers != [KNOWN] * len(answers):
        raise LostError(f"a sandbox returns wrong results for known programs: {answers}")

"""Whose doing a broken sandbox is.

It is the program's when the same actions break a second, fresh sandbox while a control sandbox of the same backend,
which lives through the same time, does what it should. Otherwise it is the infrastructure's.
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
    """Do in a second sandbox what was done in one that broke; what comes of it there.

    Raises BrokenError, whose fault is "program", when that breaks too or is not over `within_s`, while a control
    sandbox serves before and after. Any other SandboxError is the infrastructure's: no sandbox within `wait_s`, say.
    """
    async with pool.lease(wait_s) as control, pool.lease(wait_s) as second:
        await probe(control)
        try:
            async with asyncio.timeout(within_s):
                return await actions(second)
        except (LostError, ClosedError, TimeoutError) as error:
            await probe(control)
            raise BrokenError(f"two sandboxes broke of the same actions, a third serves: {error}") from error


async def probe(sandbox: Sandbox) -> None:
    """SandboxError, the infrastructure's, unless known programs and files come out as they must."""
    try:
        await sandbox.write("probe", KNOWN)
        answers = [(await sandbox.exec(Python(PROBE))).stdout, (await sandbox.run(PROBE)).stdout]
        answers.append(await sandbox.read("probe"))
    except RefusedError as error:
        raise LostError(f"a sandbox refuses a known file: {error}") from error
    if answers != [KNOWN] * len(answers):
        raise LostError(f"a sandbox does not do what is known of it: {answers}")

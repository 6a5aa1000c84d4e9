"""Blocking work of an event loop, done in a thread as long as there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it in a thread; where none is to be had, as while the interpreter ends, on the loop."""
    work = partial(call, *args, **kwargs)
    try:
        working = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:  # of the executor: what the work raises comes from the future
        return work()
    return await working

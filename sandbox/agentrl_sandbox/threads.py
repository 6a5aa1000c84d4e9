"""Blocking work of an event loop, in a thread while threads are available."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call in a thread, or on the loop if no thread can start, as during interpreter shutdown."""
    work = partial(call, *args, **kwargs)
    try:
        working = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:  # from the executor; errors of the work come from the future
        return work()
    return await working

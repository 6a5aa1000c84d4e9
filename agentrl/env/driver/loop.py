"""The private event loop behind the synchronous interfaces."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from agentrl.env.driver.resources import close_shared

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


@cache
def private_loop(pid: int) -> asyncio.AbstractEventLoop:
    """Return the loop of process `pid`, which runs in a daemon thread and ends with the process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="agentrl-gymnasium", daemon=True)
    thread.start()
    atexit.register(end, loop, thread, pid)
    return loop


def run_on_private_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the private loop and return its result; also works inside a running loop, which it blocks."""
    return asyncio.run_coroutine_threadsafe(coroutine, private_loop(os.getpid())).result()


def end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    """Close the shared resources of the loop's environments, then the loop."""
    if pid != os.getpid():
        return
    closing = asyncio.run_coroutine_threadsafe(close_shared(), loop)
    closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    thread.join(CLOSE_TIMEOUT_S)
    if not thread.is_alive():
        loop.close()

"""`grade` and `agrade`: grade a program from any thread and any event loop of this process."""

import asyncio
import atexit
import os
import threading
from collections.abc import Sequence
from functools import cache
from multiprocessing.util import Finalize
from typing import Any

from agentrl_code.cases import Test
from agentrl_code.grader import Grader
from agentrl_code.policy import Policy
from agentrl_code.verdict import Verdict
from agentrl_code.workers import Workers

CLOSE_S = 40.0
WORKERS = 4


def grade(program: str, tests: Sequence[Test], **policy: Any) -> Verdict:
    """Grade a program and block until the verdict is there. `policy` are the fields of `Policy`.

    The program runs in the sandboxes of a `Grader` that the first call creates and that closes at exit.
    """
    return asyncio.run_coroutine_threadsafe(_graded(program, tests, Policy(**policy)), _home()).result()


async def agrade(program: str, tests: Sequence[Test], grader: Grader | None = None, **policy: Any) -> Verdict:
    """Grade a program from an event loop; your own `grader` must be used on one loop only."""
    if grader is not None:
        return await grader.grade(program, tests, Policy(**policy))
    work = _graded(program, tests, Policy(**policy))
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _home()))


async def _graded(program: str, tests: Sequence[Test], policy: Policy) -> Verdict:
    return await _grader(os.getpid()).grade(program, tests, policy)


@cache
def _grader(pid: int) -> Grader:  # noqa: ARG001  (a forked child creates its own)
    return Grader()


_making = threading.Lock()


def _home() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process's grader; the first call creates it."""
    with _making:
        return _loop(os.getpid())


def _after_fork() -> None:
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """Start the event loop of the grader of process `pid` in a thread."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(Workers(WORKERS))
    thread = threading.Thread(target=loop.run_forever, name="agentrl-code", daemon=True)
    thread.start()
    atexit.register(_end, loop, thread, pid)  # runs before the pool's handler, which was registered at import
    Finalize(None, _end, (loop, thread, pid), exitpriority=0)  # for multiprocessing children, which skip atexit
    return loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    closing = asyncio.run_coroutine_threadsafe(_close(pid), loop)
    closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    thread.join(CLOSE_S)
    if not thread.is_alive():
        loop.close()


async def _close(pid: int) -> None:
    if _grader.cache_info().currsize:
        await _grader(pid).aclose()

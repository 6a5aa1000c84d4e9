"""Runs the checks on an event loop that the author's code may block."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from threading import Thread
from typing import Any

from agentrl.errors import Caught, catch
from agentrl.plugins.tracebacks import is_foreign

INSTALLED = "site-packages"
GRACE_S = 5.0
"""Time for the checks to end at their own limit."""


def run_in_thread(checks: Coroutine[Any, Any, None], timeout_s: float) -> None:
    """Run on a new event loop in a thread, which is abandoned if blocking code holds it beyond the limit."""
    outcome: list[Caught] = []
    thread = Thread(target=lambda: outcome.append(catch(asyncio.run, checks)), name="agentrl-checks", daemon=True)
    thread.start()
    thread.join(timeout_s + GRACE_S)
    assert outcome, f"the checks took longer than {timeout_s:g} s: their event loop is blocked{authors_line(thread)}"
    if outcome[0].error is not None:
        raise outcome[0].error


def authors_line(thread: Thread) -> str:
    """Return the innermost line of the author that a thread runs, as ' by f (env.py:3)'.

    It may be in a library that the author calls, if the author's own code is installed.
    """
    running = sys._current_frames().get(thread.ident or 0)
    frames = traceback.extract_stack(running) if running else []
    foreign = [frame for frame in frames if is_foreign(frame.filename)]
    authors = [frame for frame in foreign if INSTALLED not in Path(frame.filename).parts] or foreign
    return "".join(f" by {frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in authors[-1:])

"""How a command that runs for long ends when a signal stops it."""

from __future__ import annotations

import signal
from collections.abc import Callable

from agentrl.run.stop import Stopped


def exit_code(work: Callable[[], object]) -> int:
    """Do `work`; 0 when it came to its end, 128 + the signal's number (130 for Ctrl-C) when a signal ended it."""
    try:
        work()
    except Stopped as stopped:
        return 128 + signal.Signals[str(stopped)]
    return 0

"""How a command ends when a signal stops it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable


def exit_code(work: Callable[[], object]) -> int:
    """Do `work`; 0 when it came to its end, that of `stopped_by` when a signal ended it."""
    from agentrl.cluster.signals import Stopped  # with asyncio: too much for `agentrl --help`

    try:
        work()
    except Stopped as stopped:
        return stopped_by(str(stopped))
    return 0


def stopped_by(name: str) -> int:
    """Say that the signal `name` ended the command; 128 + its number: 130 for Ctrl-C, 143 for SIGTERM."""
    print(f"stopped by {name}", file=sys.stderr)
    return 128 + signal.Signals[name]

"""The ports where processes meet: one process finds them, and another binds them seconds later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from agentrl.errors import RunError

PORTS = range(20_000, 30_000)
"""Above the ports of Ray's workers, below those that Linux gives to connections: none of either takes one meanwhile."""


def free_port() -> int:
    """Return a free TCP port of this machine.

    Raises RunError if all of PORTS are taken.
    """
    ports = random.SystemRandom().sample(PORTS, len(PORTS))  # the generator of `random` may have a run's seed
    for port in ports:
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise RunError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free on {socket.gethostname()}")

"""The process of an environment in another interpreter: `PYTHON -P -m agentrl.hosting.process DESCRIPTOR`.

The descriptor is a socket to the worker. The process ends with all that it has started when the worker closes it or
dies.
Without a descriptor it imports what an environment needs, prints READY and ends.
"""

import os
import select
import socket
import sys
import threading
from importlib import import_module

from agentrl.hosting.guardian import guard

NEEDED = ("gymnasium>=1.4,<2", "h11>=0.14", "msgspec>=0.19", "numpy>=1.26", "packaging>=23", "pydantic>=2.7,<3",
          "tomlkit>=0.13")  # fmt: skip
"""Packages that agentrl needs in the interpreter of an environment."""
READY = "agentrl: ready"
END_S, BLOCKED_S = 30.0, 5.0
"""How long the episodes may take to tear down once the worker is gone, and the event loop to notice it."""


def main() -> None:
    """Serve the worker until it closes the connection."""
    descriptor = int(sys.argv[1])
    guard(descriptor)
    connected = socket.socket(fileno=descriptor)
    is_noticed, is_done = threading.Event(), threading.Event()
    threading.Thread(target=_end_with, args=(connected.dup(), is_noticed, is_done), daemon=True).start()
    _import()
    import asyncio

    from agentrl.hosting.serving import serve

    asyncio.run(serve(connected, is_noticed.set))
    is_done.set()
    _end()


def _import() -> None:
    """Import what serves an environment; exit with what to install if that fails."""
    try:
        import_module("agentrl.hosting.serving")
    except ImportError as error:
        needed = " ".join(f"'{one}'" for one in NEEDED)
        sys.exit(f"{sys.executable} lacks what agentrl needs ({error}): {sys.executable} -m pip install {needed}")


def _end_with(connected: socket.socket, is_noticed: threading.Event, is_done: threading.Event) -> None:
    """End the process when the worker has closed the socket, even if the event loop is blocked."""
    poll = select.poll()
    poll.register(connected, select.POLLRDHUP)
    poll.poll()
    if is_noticed.wait(BLOCKED_S):
        is_done.wait(END_S)
    _end()


def _end() -> None:
    """End this process without waiting for threads that an author left running."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        main()
    else:
        _import()
        print(READY)

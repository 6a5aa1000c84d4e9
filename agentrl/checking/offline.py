"""Runs a module without connections to other machines: `python -m agentrl.checking.offline MODULE`."""

from __future__ import annotations

import runpy
import socket
import sys
from typing import Any

LOOPBACK = ("127.", "::1", "localhost")


class GuardedSocket(socket.socket):
    """A socket that connects to this machine only."""

    def connect(self, address: Any) -> None:
        """Connect, or raise ConnectionRefusedError for an address of another machine."""
        super().connect(_checked(address))

    def connect_ex(self, address: Any) -> int:
        """Connect as `connect` does; an address of another machine raises."""
        return super().connect_ex(_checked(address))


def _checked(address: Any) -> Any:
    if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
        raise ConnectionRefusedError(f"agentrl env check cuts the network: {address[0]} is another machine")
    return address


if __name__ == "__main__":
    socket.socket = GuardedSocket  # type: ignore[misc]
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

"""Serve an app with uvicorn on an inherited socket until the input ends, with which the parent keeps this alive.

Runs in the interpreter of the server, in a process group of its own: python launch.py FD APP FOLDER
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from importlib import import_module


def end_with_input() -> None:
    """Kill the process group when the parent has closed the input or is gone, however it ended."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


def main(fd: int, app: str, folder: str) -> None:
    """Serve."""
    threading.Thread(target=end_with_input, daemon=True).start()
    sys.path[0] = folder  # in place of the folder of this file
    uvicorn = import_module("uvicorn")  # of the server's interpreter: no requirement of this package
    server = uvicorn.Server(uvicorn.Config(app, log_level="info"))
    server.run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

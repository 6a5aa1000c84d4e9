"""The process that workers are forked from: single-threaded and warm, so that a fresh worker costs milliseconds.

A plain worker knows our own arithmetic; a full one has math-verify too, whose import takes seconds.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys

from agentrl_math import worker

IDLE_S = 0.5
_SECOND = "agentrl_math.second"


def main(control_fd: int) -> None:
    """Serve `plain`, `full` (a new worker) and `kill PID` until the control socket closes; then end every worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    children: set[int] = set()
    importlib.import_module("agentrl_math.numeric")
    try:
        while _serve(control, children):
            if _SECOND not in sys.modules and not select.select([control], [], [], IDLE_S)[0]:
                importlib.import_module(_SECOND)
    finally:
        for pid in list(children):
            _end(pid, children)


def _serve(control: socket.socket, children: set[int]) -> bool:
    message = control.recv(64).decode()
    if not message:
        return False
    verb, _, pid = message.partition(" ")
    if verb == "kill":
        _end(int(pid), children)
    else:
        if verb == "full":
            importlib.import_module(_SECOND)
        _spawn(control, children)
    return True


def _end(pid: int, children: set[int]) -> None:
    """Kill and reap; only pids of our own unreaped children, so that none is ever someone else's."""
    if pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        children.discard(pid)


def _spawn(control: socket.socket, children: set[int]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        control.close()
        theirs.close()
        _work(ours)
    ours.close()
    children.add(pid)
    socket.send_fds(control, [str(pid).encode()], [theirs.fileno()])
    theirs.close()


def _work(channel: socket.socket) -> None:
    try:
        worker.serve(channel)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The process from which workers are forked: single-threaded and warm, so that a fresh worker takes milliseconds."""

import contextlib
import importlib
import os
import signal
import socket
import sys

from agentrl_math import worker


def main(control_fd: int, *modules: str) -> None:
    """Import `modules`, serve `spawn` and `kill PID` until the control socket closes, then end every worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    children: set[int] = set()
    for module in modules:
        importlib.import_module(module)
    try:
        while message := control.recv(64).decode():
            verb, _, pid = message.partition(" ")
            if verb == "kill":
                _end(int(pid), children)
            else:
                _spawn(control, children)
    finally:
        for child in list(children):
            _end(child, children)


def _end(pid: int, children: set[int]) -> None:
    """Kill and reap a worker, if it is one of our unreaped children, so that no other process is hit."""
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
    main(int(sys.argv[1]), *sys.argv[2:])

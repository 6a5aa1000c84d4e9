"""What Python's `os` does not reach: prctl, and signals without the slow import of `signal`."""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# Python ignores these two; a command that is executed expects them as they are by default.
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)


def prctl(option: int, value: int, content: bytes = b"") -> int:
    """The system call; 0 when it went well. Looked up by hand because importing ctypes costs more than a fork."""
    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    result: int = _ctypes.call_function(address, (option, value, content or 0, 0, 0))
    return result


def filter_calls(rules: bytes) -> None:
    """A seccomp filter for this process and whatever it forks, for good; OSError when the kernel does not take it."""
    from array import array

    instructions = array("Q", rules)
    address, count = instructions.buffer_info()
    described = count.to_bytes(8, "little") + address.to_bytes(8, "little")  # struct sock_fprog
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described):
        raise OSError("the kernel took no seccomp filter")


def wake_on_child(fd: int) -> None:
    """A byte is written to `fd` whenever a child ends. Signals without a handler cannot reach a first process."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(fd, warn_on_full_buffer=False)


def reset_signals() -> None:
    """As Python starts: nothing of the warden's is left, and an interrupt raises KeyboardInterrupt."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def default_signals() -> None:
    """As a shell starts a command."""
    for number in _IGNORED_BY_PYTHON:
        _signal.signal(number, _signal.SIG_DFL)

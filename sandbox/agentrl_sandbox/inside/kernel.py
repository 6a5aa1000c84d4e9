"""System calls that `os` lacks: prctl, and signals without the slow import of `signal`."""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_CHILD_SUBREAPER = 36

# Python ignores these two; an executed command expects their default action.
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)


def prctl(option: int, value: int, content: bytes = b"") -> int:
    """Call prctl; return 0 on success. Found by hand, because importing ctypes costs more than a fork."""
    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    result: int = _ctypes.call_function(address, (option, value, content or 0, 0, 0))
    return result


def filter_calls(rules: bytes) -> None:
    """Install a permanent seccomp filter for this process and its children; OSError if the kernel rejects it."""
    from array import array

    instructions = array("Q", rules)
    address, count = instructions.buffer_info()
    described = count.to_bytes(8, "little") + address.to_bytes(8, "little")  # struct sock_fprog
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described):
        raise OSError("the kernel rejected the seccomp filter")


def wake_on_child(fd: int) -> None:
    """Write a byte to `fd` whenever a child ends. Signals without a handler do not reach pid 1."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(fd, warn_on_full_buffer=False)


def reset_signals() -> None:
    """Restore Python's initial signal handling: an interrupt raises KeyboardInterrupt."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def default_signals() -> None:
    """Restore the signal handling that a shell gives to a command."""
    for number in _IGNORED_BY_PYTHON:
        _signal.signal(number, _signal.SIG_DFL)

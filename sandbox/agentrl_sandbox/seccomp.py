"""A seccomp filter in pure Python: it allows the system calls of `syscalls`, some depending on their arguments.

A rejected call fails as if the kernel did not know it (ENOSYS), so that libraries do without. Calls that flush the
host's disks succeed and do nothing: everything that a program can write is in memory. Calls of other architectures and
of the x32 interface are rejected.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from agentrl_sandbox.syscalls import numbers

LOAD, MASK, SKIP, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
X32_BIT = 0x40000000
DONE = 0  # a call that fails with this errno has succeeded
EVERY_BIT = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Architecture:
    """System call numbers of a processor."""

    audit: int
    calls: dict[str, int]
    has_x32: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """Check of the low (or high) half of an argument: is it one of `values` under `mask`?

    Without `values`: does it have no bit of `mask`? A call that fails the test gets the errno `otherwise`; with None it
    is allowed without further tests.
    """

    argument: int
    values: tuple[int, ...] = ()
    otherwise: int | None = errno.EPERM
    mask: int = EVERY_BIT
    is_wanted: bool = True
    is_high: bool = False

    def code(self) -> list[Instruction]:
        """Return the instructions, which fall through if the test passes."""
        load = [(LOAD, 0, 0, ARGUMENTS + 8 * self.argument + 4 * self.is_high)]
        end = _end(self.otherwise)
        if not self.values:
            return [*load, (ANY_BIT, 0, 1, self.mask), end]
        masked = [] if self.mask == EVERY_BIT else [(MASK, 0, 0, self.mask)]
        if not self.is_wanted:
            tests = [step for value in self.values for step in ((EQUAL, 0, 1, value), end)]
            return [*load, *masked, *tests]
        count = len(self.values)
        tests = [(EQUAL, count - index, 0, value) for index, value in enumerate(self.values)]
        return [*load, *masked, *tests, end]


def _is(argument: int, *values: int, otherwise: int | None = errno.EPERM, mask: int = EVERY_BIT) -> Test:
    return Test(argument, values, otherwise, mask)


def _is_not(argument: int, *values: int, otherwise: int | None = errno.EPERM) -> Test:
    return Test(argument, values, otherwise, is_wanted=False)


def _has_none(argument: int, mask: int, otherwise: int = errno.EPERM) -> Test:
    return Test(argument, mask=mask, otherwise=otherwise)


def _is_null(argument: int, otherwise: int) -> tuple[Test, Test]:
    """Return the tests of both halves of a pointer."""
    return Test(argument, (0,), otherwise), Test(argument, (0,), otherwise, is_high=True)


UNIX, INET, INET6 = 1, 2, 10
STREAM, DATAGRAM, KIND = 1, 2, 0xF  # the other bits of a socket's type are flags
TCP, UDP = 6, 17
NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS, CGROUP, UTS, IPC, USER, PID, NET} and NEWTIME
CLONE_PARENT = 0x8000
MAP_HUGETLB, MFD_HUGETLB = 0x40000, 0x4
DEFAULT_PERSONALITIES = (0, 0xFFFFFFFF)
RLIMIT_CORE = 4
WARDEN = 1
# F_DUPFD to F_SETLKW, F_OFD_*, F_GETLEASE, F_DUPFD_*, F_GETPIPE_SZ, seals and hints; not F_SETPIPE_SZ, F_SETLEASE,
# F_NOTIFY, nor signals for another process (F_SETOWN, F_SETSIG).
FILE_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1025, 1027, 1030, 1032, 1033, 1034, 1035, 1036, 1037, 1038)
# TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
DEVICE_COMMANDS = (0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PDEATHSIG, DUMPABLE, KEEPCAPS (get), NAME, SECCOMP (get), CAPBSET_READ, SECUREBITS (get), TIMERSLACK, NO_NEW_PRIVS,
# TID_ADDRESS, THP_DISABLE, SPECULATION_CTRL (get), and the names that glibc gives to pieces of memory
PROCESS_OPTIONS = (1, 2, 3, 4, 7, 15, 16, 21, 23, 27, 29, 30, 38, 39, 40, 41, 42, 52, 0x53564D41)

OWN = (_is(0, 0),)  # pid 0 means the caller itself
NOT_THE_WARDEN = (_is_not(0, WARDEN),)
RULES: dict[str, Sequence[Test]] = {
    "socketpair": (_is(0, UNIX, otherwise=errno.EAFNOSUPPORT),),
    "clone": (_has_none(0, NEW_NAMESPACES | CLONE_PARENT),),
    "mmap": (_has_none(3, MAP_HUGETLB, errno.ENOMEM),),
    "memfd_create": (_has_none(1, MFD_HUGETLB),),
    "fcntl": (_is(1, *FILE_COMMANDS),),
    "ioctl": (_is(1, *DEVICE_COMMANDS, otherwise=errno.ENOTTY),),
    "prctl": (_is(0, *PROCESS_OPTIONS, otherwise=errno.EINVAL),),
    "personality": (_is(0, *DEFAULT_PERSONALITIES),),
    # The core limit is 1: with 0, a crash would start the host's core-dump handler.
    "setrlimit": (_is_not(0, RLIMIT_CORE, otherwise=DONE),),
    "prlimit64": (*OWN, _is(1, RLIMIT_CORE, otherwise=None), *_is_null(2, otherwise=DONE)),
    "setpriority": (*OWN, _is(1, 0)),
    "sched_setaffinity": OWN,
    "sched_setparam": OWN,
    "sched_setscheduler": OWN,
    "sched_setattr": OWN,
    "kill": NOT_THE_WARDEN,
    "tkill": NOT_THE_WARDEN,
    "tgkill": NOT_THE_WARDEN,
    "rt_sigqueueinfo": NOT_THE_WARDEN,
    "rt_tgsigqueueinfo": NOT_THE_WARDEN,
    "pidfd_open": NOT_THE_WARDEN,
}
LOCAL_SOCKETS = (_is(0, UNIX, otherwise=errno.EAFNOSUPPORT),)
# Only TCP and UDP: requesting another protocol makes the host load a kernel module.
SOCKETS = (
    _is_not(0, UNIX, otherwise=None),
    _is(0, INET, INET6, otherwise=errno.EAFNOSUPPORT),
    _is(1, STREAM, DATAGRAM, otherwise=errno.EPROTONOSUPPORT, mask=KIND),
    _is(2, 0, TCP, UDP, otherwise=errno.EPROTONOSUPPORT),
)
ANSWERED = ("sync", "syncfs", "fsync", "fdatasync", "msync", "sync_file_range", "fadvise64")

ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, numbers(1), has_x32=True),
    "aarch64": Architecture(0xC00000B7, numbers(2)),
}


@cache
def program(machine: str = "", has_internet: bool = False) -> bytes | None:
    """Return the filter for this machine as an array of struct sock_filter; None for an unsupported processor.

    `has_internet` allows TCP and UDP within the sandbox, which is safe only if something limits their buffers.
    """
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture.audit), _end(errno.ENOSYS), (LOAD, 0, 0, NUMBER)]
    if architecture.has_x32:
        code += [(AT_LEAST, 0, 1, X32_BIT), _end(errno.ENOSYS)]
    code += _search(_ranges(architecture.calls, RULES | {"socket": SOCKETS if has_internet else LOCAL_SOCKETS}))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _ranges(calls: dict[str, int], rules: dict[str, Sequence[Test]]) -> list[tuple[int, list[Instruction]]]:
    """Return (first number, instructions) of every range of system calls; equal neighbours are merged."""
    found: list[tuple[int, list[Instruction]]] = []

    def add(number: int, code: list[Instruction]) -> None:
        if not found or found[-1][1] != code:
            found.append((number, code))

    following = 0
    for name, number in sorted(calls.items(), key=lambda call: call[1]):
        if number > following:
            add(following, [_end(errno.ENOSYS)])
        tests = [step for test in rules.get(name, ()) for step in test.code()]
        add(number, [*tests, _end(DONE if name in ANSWERED else None)])
        following = number + 1
    add(following, [_end(errno.ENOSYS)])
    return found


def _search(ranges: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Return a binary search for the range of the loaded number."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    return [(AT_LEAST, 0, 1, ranges[middle][0]), (SKIP, 0, 0, len(below)), *below, *above]


def _end(number: int | None) -> Instruction:
    """Return the instruction that fails the call with this errno, or with None allows it."""
    return (RETURN, 0, 0, ALLOW if number is None else ERRNO | number)

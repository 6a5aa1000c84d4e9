"""A seccomp filter in pure Python: what a program has no business with fails, the rest goes through.

A deny-list. The namespaces, the read-only system and the missing privileges are the walls; the filter takes away calls
that have often been the way through a wall. Foreign architectures and the x32 interface are refused altogether.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS, CGROUP, UTS, IPC, USER, PID, NET} and NEWTIME
SOCKET_FAMILIES = (1, 2, 10)  # UNIX, INET, INET6: not VSOCK, which knows no network namespace
TERMINAL_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
DEFAULT_PERSONALITIES = (0, 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a processor's system calls are numbered."""

    audit: int
    calls: dict[str, int]
    has_x32: bool = False


# Numbers that both tables share since Linux 5.1, and those that aarch64 took from the generic table.
_SHARED = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "process_mrelease": 448,
}  # fmt: skip
_X86_64 = {
    "socket": 41, "clone": 56, "ioctl": 16, "personality": 135, "ptrace": 101, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321,
    "perf_event_open": 298, "userfaultfd": 323, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "quotactl": 179, "settimeofday": 164, "clock_settime": 227,
    "clock_adjtime": 305, "adjtimex": 159, "syslog": 103, "vhangup": 153, "fanotify_init": 300, "move_pages": 279,
    "migrate_pages": 256, "mbind": 237, "set_mempolicy": 238, "lookup_dcookie": 212, "nfsservctl": 180,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139,
    "sethostname": 170, "setdomainname": 171,
}  # fmt: skip
_AARCH64 = {
    "socket": 198, "clone": 220, "ioctl": 29, "personality": 92, "ptrace": 117, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41,
    "chroot": 51, "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
    "userfaultfd": 282, "init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104,
    "kexec_file_load": 294, "reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89, "open_by_handle_at": 265,
    "name_to_handle_at": 264, "quotactl": 60, "settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266,
    "adjtimex": 171, "syslog": 116, "vhangup": 58, "fanotify_init": 262, "move_pages": 239, "migrate_pages": 238,
    "mbind": 235, "set_mempolicy": 237, "lookup_dcookie": 18, "nfsservctl": 42, "sethostname": 161,
    "setdomainname": 162,
}  # fmt: skip

ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, _X86_64 | _SHARED, has_x32=True),
    "aarch64": Architecture(0xC00000B7, _AARCH64 | _SHARED),
}
# Refused by their arguments, or as if the kernel did not know them: glibc then falls back to what can be looked at.
_BY_ARGUMENT = ("socket", "clone", "ioctl", "personality")
_UNKNOWN = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")


@cache
def program(machine: str = "") -> bytes | None:
    """The filter for this machine, as an array of struct sock_filter; None for a processor without a table."""
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    calls = architecture.calls
    code = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_EQUAL, 1, 0, architecture.audit), _refuse(errno.ENOSYS)]
    code.append((LOAD, 0, 0, NUMBER))
    if architecture.has_x32:
        code += [(JUMP_AT_LEAST, 0, 1, X32_BIT), _refuse(errno.ENOSYS)]
    for name, number in calls.items():
        if name not in _BY_ARGUMENT:
            code += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.ENOSYS if name in _UNKNOWN else errno.EPERM)]
    code += _only(calls["socket"], 0, SOCKET_FAMILIES, errno.EAFNOSUPPORT)
    code += _only(calls["personality"], 0, DEFAULT_PERSONALITIES, errno.EPERM)
    code += _none_of(calls["ioctl"], 1, TERMINAL_INJECTIONS)
    code += _no_bit(calls["clone"], 0, NEW_NAMESPACES)
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


Instruction = tuple[int, int, int, int]


def _refuse(number: int) -> Instruction:
    return (RETURN, 0, 0, ERRNO | number)


def _argument(index: int) -> Instruction:
    """Load the low half of an argument: what these calls look at is an int."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def _guarded(number: int, body: list[Instruction]) -> list[Instruction]:
    """`body` for one system call; afterwards the number is loaded again."""
    return [(JUMP_EQUAL, 0, len(body), number), *body, (LOAD, 0, 0, NUMBER)]


def _only(number: int, index: int, values: tuple[int, ...], refusal: int) -> list[Instruction]:
    tests = [(JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return _guarded(number, [_argument(index), *tests, _refuse(refusal)])


def _none_of(number: int, index: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [step for value in values for step in ((JUMP_EQUAL, 0, 1, value), _refuse(errno.EPERM))]
    return _guarded(number, [_argument(index), *tests])


def _no_bit(number: int, index: int, mask: int) -> list[Instruction]:
    return _guarded(number, [_argument(index), (JUMP_ANY_BIT, 0, 1, mask), _refuse(errno.EPERM)])

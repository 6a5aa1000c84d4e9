"""The filter, run by an interpreter of its instructions: what it lets through and what not, on every architecture."""

from __future__ import annotations

import errno
import struct

import pytest
from agentrl_sandbox.seccomp import ALLOW, ANSWERED, ARCHITECTURES, ERRNO, RULES, X32_BIT, program

CLONE_NEWUSER, CLONE_NEWPID, CLONE_PARENT, CLONE_THREAD, SIGCHLD = 0x10000000, 0x20000000, 0x8000, 0x10000, 17


def verdict(machine: str, number: int, *args: int, audit: int | None = None, has_internet: bool = False) -> int:
    """0 when the call goes through, else the errno with which it fails."""
    value = decision(machine, number, *args, audit=audit, has_internet=has_internet)
    assert value != ERRNO
    return 0 if value == ALLOW else value - ERRNO


def decision(machine: str, number: int, *args: int, audit: int | None = None, has_internet: bool = False) -> int:
    """What the filter returns."""
    code = program(machine, has_internet)
    assert code is not None
    data = struct.pack("=II Q 6Q", number, audit or ARCHITECTURES[machine].audit, 0, *(*args, *[0] * 6)[:6])
    instructions = list(struct.iter_unpack("=HBBI", code))
    at = accumulator = 0
    while True:
        operation, true, false, value = instructions[at]
        at += 1
        match operation:
            case 0x20:
                accumulator = int.from_bytes(data[value : value + 4], "little")
            case 0x15:
                at += true if accumulator == value else false
            case 0x35:
                at += true if accumulator >= value else false
            case 0x45:
                at += true if accumulator & value else false
            case 0x05:
                at += value
            case 0x54:
                accumulator &= value
            case 0x06:
                return value


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


RAW, STREAM, CLOEXEC = 3, 1, 0o2000000
OWN, OTHER = 0, 77
POINTER = 0x7F00_0000_0000  # whose low half is 0


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("clone", (SIGCHLD,), 0),
        ("clone", (CLONE_THREAD,), 0),
        ("clone", (CLONE_NEWUSER | SIGCHLD,), errno.EPERM),
        ("clone", (CLONE_NEWPID,), errno.EPERM),
        ("clone", (CLONE_PARENT | SIGCHLD,), errno.EPERM),
        ("socket", (1, RAW), 0),
        ("socket", (2, STREAM), errno.EAFNOSUPPORT),
        ("socket", (16,), errno.EAFNOSUPPORT),
        ("socketpair", (1,), 0),
        ("socketpair", (30,), errno.EAFNOSUPPORT),
        ("personality", (0,), 0),
        ("personality", (0xFFFFFFFF,), 0),
        ("personality", (0x0040000,), errno.EPERM),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x5412), errno.ENOTTY),
        ("ioctl", (0, 0x541C), errno.ENOTTY),
        ("ioctl", (0, 0x100005412), errno.ENOTTY),
        ("fcntl", (0, 6), 0),
        ("fcntl", (0, 1030), 0),
        ("fcntl", (0, 1031), errno.EPERM),
        ("fcntl", (0, 1024), errno.EPERM),
        ("fcntl", (0, 1026), errno.EPERM),
        ("fcntl", (0, 8), errno.EPERM),
        ("mmap", (0, 4096, 3, 0x22), 0),
        ("mmap", (0, 4096, 3, 0x40022), errno.ENOMEM),
        ("memfd_create", (0, 1), 0),
        ("memfd_create", (0, 5), errno.EPERM),
        ("prctl", (15,), 0),
        ("prctl", (22,), errno.EINVAL),
        ("prctl", (36,), errno.EINVAL),
        ("prctl", (62,), errno.EINVAL),
        ("prlimit64", (OWN, 7, POINTER), 0),
        ("prlimit64", (OTHER, 7, 0), errno.EPERM),
        ("prlimit64", (OWN, 4, 0), 0),
        ("setpriority", (0, OWN, 5), 0),
        ("setpriority", (0, OTHER, 5), errno.EPERM),
        ("setpriority", (2, OWN, 5), errno.EPERM),
        ("sched_setaffinity", (OWN,), 0),
        ("sched_setaffinity", (OTHER,), errno.EPERM),
        ("sched_setscheduler", (OTHER,), errno.EPERM),
        ("sched_setparam", (OTHER,), errno.EPERM),
        ("sched_setattr", (OTHER,), errno.EPERM),
        ("kill", (OTHER, 9), 0),
        ("kill", (1, 9), errno.EPERM),
        ("tgkill", (1, 1, 9), errno.EPERM),
        ("tkill", (1, 9), errno.EPERM),
        ("rt_sigqueueinfo", (1, 9), errno.EPERM),
        ("rt_tgsigqueueinfo", (1, 1, 9), errno.EPERM),
        ("pidfd_open", (OTHER,), 0),
        ("pidfd_open", (1,), errno.EPERM),
    ],
)
def test_calls_are_judged_by_number_and_argument(machine: str, name: str, args: tuple[int, ...], expected: int) -> None:
    assert verdict(machine, ARCHITECTURES[machine].calls[name], *args) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((1, RAW), 0),
        ((2, STREAM), 0),
        ((10, STREAM | CLOEXEC, 6), 0),
        ((2, 2, 17), 0),
        ((2, STREAM, 132), errno.EPROTONOSUPPORT),
        ((2, RAW, 1), errno.EPROTONOSUPPORT),
        ((10, 5), errno.EPROTONOSUPPORT),
        ((16, RAW), errno.EAFNOSUPPORT),
        ((40, STREAM), errno.EAFNOSUPPORT),
    ],
)
def test_where_buffers_are_counted_there_is_tcp_and_udp_and_no_other_protocol(
    machine: str, args: tuple[int, ...], expected: int
) -> None:
    assert verdict(machine, ARCHITECTURES[machine].calls["socket"], *args, has_internet=True) == expected


@pytest.mark.parametrize("name", ["sync", "syncfs", "fsync", "fdatasync", "msync", "sync_file_range", "fadvise64"])
def test_calls_that_load_the_hosts_disks_are_answered_without_effect(machine: str, name: str) -> None:
    assert decision(machine, ARCHITECTURES[machine].calls[name]) == ERRNO


@pytest.mark.parametrize("pointer", [1, POINTER])
def test_the_limit_for_cores_seems_to_be_set_and_stays(machine: str, pointer: int) -> None:
    calls = ARCHITECTURES[machine].calls
    assert decision(machine, calls["prlimit64"], OWN, 4, pointer) == ERRNO
    assert decision(machine, calls["setrlimit"], 4, pointer) == ERRNO
    assert decision(machine, calls["setrlimit"], 7, pointer) == ALLOW


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        *(("x86_64", number) for number in (73, 101, 149, 165, 166, 206, 248, 250, 253, 272, 294, 298, 303, 304, 308)),
        *(("x86_64", number) for number in (310, 321, 323, 324, 425, 426, 428, 430, 435, 438, 440, 444, 447, 451)),
        *(("aarch64", number) for number in (0, 26, 32, 40, 97, 117, 180, 190, 194, 213, 217, 228, 241, 264, 265, 280)),
        *(("aarch64", number) for number in (282, 425, 435, 438, 440, 447)),
    ],
)
def test_what_is_not_listed_does_not_exist(machine: str, number: int) -> None:
    assert verdict(machine, number) == errno.ENOSYS


def test_every_number_is_judged_as_the_table_says(machine: str) -> None:
    names = {number: name for name, number in ARCHITECTURES[machine].calls.items()}
    for number in (*range(1000), 1 << 20):
        name = names.get(number)
        if name is None:
            assert verdict(machine, number) == errno.ENOSYS, number
        elif name not in RULES and name not in ANSWERED and name != "socket":
            assert decision(machine, number) == ALLOW, name


def test_foreign_architectures_are_refused(machine: str) -> None:
    assert verdict(machine, 0, audit=0x40000003) == errno.ENOSYS


def test_the_second_interface_of_x86_64_is_refused() -> None:
    assert verdict("x86_64", X32_BIT) == errno.ENOSYS
    assert verdict("x86_64", X32_BIT | 101) == errno.ENOSYS


def test_an_unknown_processor_has_no_filter_and_says_so() -> None:
    assert program("riscv64") is None

"""The filter, run by an interpreter of its instructions: what it lets through and what not, on every architecture."""

from __future__ import annotations

import errno
import struct

import pytest
from agentrl_sandbox.seccomp import ALLOW, ARCHITECTURES, ERRNO, X32_BIT, program

CLONE_NEWUSER, CLONE_NEWPID, SIGCHLD, CLONE_THREAD = 0x10000000, 0x20000000, 17, 0x10000


def verdict(machine: str, number: int, *args: int, audit: int | None = None) -> int:
    """0 when the call goes through, else the errno with which it fails."""
    code = program(machine)
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
            case 0x06:
                return 0 if value == ALLOW else value - ERRNO


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("ptrace", (), errno.EPERM),
        ("unshare", (), errno.EPERM),
        ("mount", (), errno.EPERM),
        ("bpf", (), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("io_uring_setup", (), errno.ENOSYS),
        ("clone", (SIGCHLD,), 0),
        ("clone", (CLONE_THREAD,), 0),
        ("clone", (CLONE_NEWUSER | SIGCHLD,), errno.EPERM),
        ("clone", (CLONE_NEWPID,), errno.EPERM),
        ("socket", (1,), 0),
        ("socket", (2,), 0),
        ("socket", (10,), 0),
        ("socket", (16,), errno.EAFNOSUPPORT),
        ("socket", (17,), errno.EAFNOSUPPORT),
        ("socket", (38,), errno.EAFNOSUPPORT),
        ("socket", (40,), errno.EAFNOSUPPORT),
        ("personality", (0,), 0),
        ("personality", (0xFFFFFFFF,), 0),
        ("personality", (0x0040000,), errno.EPERM),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x100005412), errno.EPERM),
    ],
)
def test_calls_are_judged_by_number_and_argument(machine: str, name: str, args: tuple[int, ...], expected: int) -> None:
    assert verdict(machine, ARCHITECTURES[machine].calls[name], *args) == expected


def test_every_listed_call_is_refused_whatever_its_arguments_or_by_them(machine: str) -> None:
    by_argument = {"clone", "socket", "personality", "ioctl"}
    for name, number in ARCHITECTURES[machine].calls.items():
        assert name in by_argument or verdict(machine, number) in (errno.EPERM, errno.ENOSYS), name


def test_ordinary_calls_go_through(machine: str) -> None:
    refused = set(ARCHITECTURES[machine].calls.values())
    assert [number for number in range(300) if number not in refused and verdict(machine, number)] == []


def test_foreign_architectures_are_refused(machine: str) -> None:
    assert verdict(machine, 0, audit=0x40000003) == errno.ENOSYS


def test_the_second_interface_of_x86_64_is_refused() -> None:
    assert verdict("x86_64", X32_BIT) == errno.ENOSYS
    assert verdict("x86_64", X32_BIT | 101) == errno.ENOSYS


def test_an_unknown_processor_has_no_filter_and_says_so() -> None:
    assert program("riscv64") is None

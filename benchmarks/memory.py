"""Resident memory of this process, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def forget_peak() -> None:
    """Let `peak_bytes` begin again at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")  # see proc(5): resets VmHWM


def peak_bytes() -> int:
    """The most that was resident since `forget_peak`."""
    return _status("VmHWM")


def resident_bytes() -> int:
    """What is resident now."""
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))

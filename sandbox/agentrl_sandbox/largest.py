"""Largest limits that a client may choose: about half of the machine, or the server's settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace

from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import Limits

LONGEST_S = 3600.0
SHOWN = 40  # characters of a client's number in an error


def memory_here() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def largest_here() -> Limits:
    """Return the largest limits on this machine; never less than the defaults."""
    memory, least = memory_here(), Limits()
    return Limits(
        wall_s=LONGEST_S,
        cpu_s=LONGEST_S,
        output_bytes=wire.MAX_BYTES,
        memory_bytes=max(memory // 2, least.memory_bytes),
        processes=1024,
        disk_bytes=max(memory // 4, least.disk_bytes),
        open_files=4096,
        cpus=float(os.cpu_count() or 1),
    )


def changed(limits: Limits, settings: Sequence[str]) -> Limits:
    """Return the limits with `NAME=NUMBER` settings applied; ValueError if one is invalid."""
    kinds = {each.name: type(getattr(limits, each.name)) for each in fields(limits)}
    for setting in settings:
        name, _, number = setting.partition("=")
        if name not in kinds:
            raise ValueError(f"unknown limit {setting!r}. Write NAME=NUMBER; names: {', '.join(kinds)}")
        limits = replace(limits, **{name: kinds[name](number)})
    if limits.output_bytes > wire.MAX_BYTES:
        raise ValueError(f"output_bytes={limits.output_bytes}; the maximum is {wire.MAX_BYTES}")
    return limits


def check(limits: Limits, largest: Limits) -> Limits:
    """Return the limits; ValueError if one exceeds the largest."""
    for each in fields(limits):
        value, allowed = getattr(limits, each.name), getattr(largest, each.name)
        if value > allowed:
            setting = f"{each.name}={str(value)[:SHOWN]}"
            raise ValueError(
                f"{setting}: this server allows {allowed}. Request less, or start it with --largest {setting}"
            )
    return limits

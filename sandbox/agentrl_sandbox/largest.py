"""How far programs may go whose limits a client chooses: about half of the machine, or what the server's owner says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace

from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import Limits

LONGEST_S = 3600.0
SHOWN = 40  # characters of a number that a client sends


def memory_here() -> int:
    """This machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def largest_here() -> Limits:
    """Return the largest limits on this machine; never less than the defaults."""
    memory, least = memory_here(), Limits()
    return Limits(
        wall_s=LONGEST_S,
        cpu_s=LONGEST_S,
        output_bytes=wire.MOST_BYTES,
        memory_bytes=max(memory // 2, least.memory_bytes),
        processes=1024,
        disk_bytes=max(memory // 4, least.disk_bytes),
        open_files=4096,
        cpus=float(os.cpu_count() or 1),
    )


def changed(limits: Limits, settings: Sequence[str]) -> Limits:
    """With `NAME=NUMBER` for some of them; ValueError for what is none."""
    kinds = {each.name: type(getattr(limits, each.name)) for each in fields(limits)}
    for setting in settings:
        name, _, number = setting.partition("=")
        if name not in kinds:
            raise ValueError(f"no limit {setting!r}. Give NAME=NUMBER; names: {', '.join(kinds)}")
        limits = replace(limits, **{name: kinds[name](number)})
    if limits.output_bytes > wire.MOST_BYTES:
        raise ValueError(f"output_bytes={limits.output_bytes}; no more than {wire.MOST_BYTES} travel at once")
    return limits


def check(limits: Limits, largest: Limits) -> Limits:
    """Return the same limits; ValueError where one goes beyond the largest."""
    for each in fields(limits):
        value, most = getattr(limits, each.name), getattr(largest, each.name)
        if value > most:
            wanted = f"{each.name}={str(value)[:SHOWN]}"
            raise ValueError(f"{wanted}: this server gives {most}. Ask for less, or start it with --largest {wanted}")
    return limits

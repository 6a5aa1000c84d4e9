"""Observations during an episode: values that it changes for later ones, and time in which it blocks the event loop."""

from __future__ import annotations

import asyncio
import reprlib
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sized
from contextlib import asynccontextmanager
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any
from zlib import crc32

from agentrl.plugins.tracebacks import is_foreign_class

TICK_S, LONG_S = 0.05, 1.0
PLAIN = (
    list, dict, set, deque, Counter, OrderedDict, defaultdict, SimpleNamespace, bytearray,
    int, float, bool, str, NoneType,
)  # fmt: skip
"""Types of values that are compared, besides NumPy arrays; a functools cache, pool or lock may outlive an episode."""
MAX_ENTRIES, MAX_BYTES = 10_000, 64 << 20
BRIEF = reprlib.Repr()
BRIEF.maxlevel, BRIEF.maxstring, BRIEF.maxother = 4, 1000, 1000
BRIEF.maxlist = BRIEF.maxdict = BRIEF.maxset = BRIEF.maxdeque = BRIEF.maxtuple = 100


@asynccontextmanager
async def observed(env_class: type) -> AsyncIterator[list[str]]:
    """Collect notes on the body until it ends: what it changed for later episodes, how long it blocked."""
    notes: list[str] = []
    before = lasting(env_class)
    async with pulse() as delays:
        yield notes
    changed = [name for name, value in lasting(env_class).items() if value != before.get(name, value)]
    if changed:
        notes.append(
            f"{', '.join(changed)} changed during an episode but is shared by all episodes of a worker; use ctx.state."
        )
    if max(delays) > LONG_S:
        notes.append(
            f"The environment blocked the event loop for {max(delays):.1f} s, during which no other episode runs: "
            "put blocking code in plain methods without blocking = False, or in asyncio.to_thread."
        )


@asynccontextmanager
async def pulse() -> AsyncIterator[list[float]]:
    """Measure delays of the event loop while the body runs; yields the list to which they are added."""
    delays = [0.0]

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            delays.append(time.monotonic() - began - TICK_S)

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    try:
        yield delays
    finally:
        await asyncio.sleep(0)
        beating.cancel()


def lasting(env_class: type) -> dict[str, str]:
    """Return the plain values of the author's classes and of their modules, as short texts by name."""
    return {name: _brief(value) for name, value in _values(env_class) if type(value) in PLAIN or _is_array(value)}


def _values(env_class: type) -> Iterator[tuple[str, Any]]:
    authors = [base for base in env_class.__mro__ if is_foreign_class(base)]
    for base in authors:
        yield from ((f"{base.__name__}.{name}", value) for name, value in vars(base).items() if _is_own(name))
    for module in dict.fromkeys(sys.modules[base.__module__] for base in authors):
        file = Path(str(module.__file__)).name
        yield from ((f"{name} ({file})", value) for name, value in vars(module).items() if _is_own(name))


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def _is_own(name: str) -> bool:
    return not (name.startswith("__") and name.endswith("__"))


def _brief(value: Any) -> str:
    """Return a short text of a value: its size and its first entries; for an array its shape and a checksum."""
    if _is_array(value):
        return f"{value.shape} {crc32(value.tobytes()) if value.nbytes <= MAX_BYTES else ''}"
    if isinstance(value, dict | SimpleNamespace):
        value = dict(value if isinstance(value, dict) else vars(value))
    size = len(value) if isinstance(value, Sized) else 0
    return str(size) if size > MAX_ENTRIES else f"{size} {BRIEF.repr(value)}"
